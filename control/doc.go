// Package control holds the three requests a controller sends to brokers,
// LeaderAndIsr, UpdateMetadata and StopReplica, and the Batch that collects
// them per broker (Kafka: ControllerBrokerRequestBatch).
//
// It is pure: decisions fill a Batch, the loop flushes it, dispatch/ encodes
// and delivers. What always holds: one flush gives, per broker, at most one
// LeaderAndIsr, then one UpdateMetadata, then one StopReplica. The trap: all
// UpdateMetadata requests of a flush share one body, so nobody may change it.
package control
