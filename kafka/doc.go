// Package kafka is the vocabulary shared by every other package: broker ids,
// topic partitions, replica assignments, leadership, error codes and protocol
// versions, under Kafka's own names.
//
// It imports nothing of this module and holds no state. The one trap: a nil
// and an empty replica list mean the same thing here; codecs that must tell
// null from empty do so in their own package.
package kafka
