// Package wire is Kafka's protocol on sockets: frames, headers, the three
// control requests with their answers, a client's side (Conn) and a server's
// side (Server).
//
// It stands at the edge, under dispatch/ (control requests to brokers),
// endpoint/ (the controller's own port) and brokers/ (the emulated brokers'
// ports). Every message but the control requests is coded by kmsg; those are
// coded here, from the layouts of spec/control-plane.md §1.3 to §1.5, because
// they are large and because kmsg v1.15.1 has two fields of StopReplica v4 in
// the wrong order.
//
// What always holds: requests of one connection are handled one after the
// other, answers leave in that order, and whatever arrives hurts at most the
// connection it came on. The trap: all UpdateMetadata requests of a batch share
// one body, so it is encoded apart from the header that names the receiver
// (AppendUpdateMetadataHeader, AppendMetadata) and never per broker.
package wire
