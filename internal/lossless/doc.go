// Package lossless judges whether a cluster keeps its word: every record that it
// acknowledged to a producer with acks=all is read back once, in order, whatever
// happened to its brokers meanwhile.
//
// It stands outside the program. Run has idempotent producers write and
// consumers read while faults come in an order that a seed decides; then it
// heals everything, demands that all is in sync again, and reads every replica.
// History.Check is the judge: from what was acknowledged, what consumers saw and
// what is there at last it tells each broken promise.
//
// What always holds: the seed decides the faults, and their moments as far as
// the machine can keep them, so a seed shows a fault again, if not surely. The
// trap: a producer that gives up a record leaves open whether it is there; such a
// record may be there once, or not at all.
package lossless
