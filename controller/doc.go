// Package controller is the loop: Kafka's ZooKeeper-mode controller as one
// queue, one goroutine, one function per event.
//
// It stands between listeners/ (notices become events), the pure packages
// statemachine/, reassign/ and deletion/ (what to do) and the edges zkstore/
// and dispatch/ (doing it), which it reaches only through the interfaces it
// declares here. What always holds: one event runs to its end, ZooKeeper
// writes included, before the next begins; every write is fenced by the
// version of /controller_epoch; requests leave after the writes they announce
// were applied. The trap: an event says where to look, so every handler reads
// ZooKeeper again, and that read re-arms the watch that brought it here.
package controller
