// Package config turns flags, environment, a file and defaults into one typed
// struct.
//
// It stands at the edge, before anything runs: cmd/zkcontroller/ calls Load
// and hands each package its own small options. What always holds: flags win
// over ZKC_* variables, those over the file (YAML, or Kafka's
// server.properties), the file over defaults; every value remembers where it
// came from; a key nobody knows is reported by Config.Unknown and hurts
// nothing. The trap: Kafka's keys have dots and viper splits on dots and
// lower-cases, so viper works with another delimiter here and never sees the
// keys of a file that this package does not know.
package config
