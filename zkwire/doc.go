// Package zkwire has ZooKeeper's wire format: frames, primitives, and the
// records of requests, answers and notices, to and from bytes.
//
// It stands under both ends: zkstore/ reads many znodes through it, the
// embedded server answers through it. The layouts are those of
// spec/zookeeper.md §4.1 to §4.6, measured on Apache ZooKeeper.
//
// What always holds: encoders append to a slice and use no reflection; decoders
// take any bytes without a panic, allocate no more than a small multiple of what
// they were given, and keep a null buffer (nil) apart from an empty one.
//
// The trap: buffers that a Decoder returns alias its input. Copy what outlives
// the frame.
package zkwire
