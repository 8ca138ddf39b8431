package zkpaths

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const noticeRemedy = "it is passed over; remove the node if it stays"

// EncodeISRNotification gives the payload by which a leader announces that it
// changed these partitions' ISR (spec/controller.md §1.11).
func EncodeISRNotification(tps []kafka.TopicPartition) []byte { return encodePartitions(tps) }

// DecodeISRNotification reads the announcement at path, each partition once.
func DecodeISRNotification(path string, data []byte) ([]kafka.TopicPartition, error) {
	tps, err := decodePartitions(data)
	if err != nil {
		return nil, &PayloadError{Path: path, Reason: err.Error(), Remedy: noticeRemedy}
	}
	return tps, nil
}

// LogDirFailure is the only Event of a LogDirEvent so far.
const LogDirFailure = 1

// LogDirEvent tells that something happened to a log directory of a broker.
type LogDirEvent struct {
	Broker kafka.BrokerID
	Event  int
}

// EncodeLogDirEvent gives the payload of a log directory notification.
func EncodeLogDirEvent(e LogDirEvent) []byte {
	b := append(make([]byte, 0, 40), `{"version":1,"broker":`...)
	b = appendInt(b, e.Broker)
	b = append(b, `,"event":`...)
	return append(appendInt(b, e.Event), '}')
}

// DecodeLogDirEvent reads the notification at path.
func DecodeLogDirEvent(path string, data []byte) (LogDirEvent, error) {
	var e LogDirEvent
	o, err := parseObject(data)
	if err == nil {
		e.Broker, err = o.broker("broker")
	}
	if err == nil {
		var n int32
		n, err = o.int32("event")
		e.Event = int(n)
	}
	if err != nil {
		return LogDirEvent{}, &PayloadError{Path: path, Reason: err.Error(), Remedy: noticeRemedy}
	}
	return e, nil
}

// ConfigChange tells whose configuration to read again.
type ConfigChange struct {
	EntityPath string // topics/foo, users/alice/clients/c; names sanitised
}

// EncodeConfigChange gives the payload of a change notification, version 2.
func EncodeConfigChange(c ConfigChange) []byte {
	b := append(make([]byte, 0, 64), `{"version":2,"entity_path":`...)
	return append(appendText(b, c.EntityPath), '}')
}

// DecodeConfigChange reads the notification at path. Version 1, with type and
// name apart, is read as well (spec/controller.md §1.12).
func DecodeConfigChange(path string, data []byte) (ConfigChange, error) {
	c, err := decodeConfigChange(data)
	if err != nil {
		return ConfigChange{}, &PayloadError{Path: path, Reason: err.Error(), Remedy: noticeRemedy}
	}
	return c, nil
}

func decodeConfigChange(data []byte) (c ConfigChange, err error) {
	o, err := parseObject(data)
	if err != nil {
		return c, err
	}
	version, err := o.int32("version")
	if err != nil {
		return c, err
	}
	switch version {
	case 1:
		kind, err := o.text("entity_type")
		if err != nil {
			return c, err
		}
		if kind != "topics" && kind != "clients" {
			return c, field("entity_type", fmt.Errorf("is neither topics nor clients: %q", kind))
		}
		name, err := o.text("entity_name")
		if err != nil {
			return c, err
		}
		c.EntityPath = kind + "/" + name
	case 2:
		if c.EntityPath, err = o.text("entity_path"); err != nil {
			return c, err
		}
	default:
		return c, fmt.Errorf("has the unsupported version %d", version)
	}
	for _, part := range strings.Split(c.EntityPath, "/") {
		if part == "" || !strings.Contains(c.EntityPath, "/") {
			return c, fmt.Errorf("names no entity: %q", c.EntityPath)
		}
	}
	return c, nil
}

// SanitizeEntity gives the form in which an entity's name stands in a path:
// its UTF-8 bytes percent-encoded, but for letters, digits, '.', '-' and '_'
// (spec/admin-api.md §7.1). DefaultEntity is a node name already and does not
// go through here.
func SanitizeEntity(name string) string {
	const upperHex = "0123456789ABCDEF"
	b := make([]byte, 0, len(name)+8)
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_':
			b = append(b, c)
		default:
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

// DesanitizeEntity is the reverse of SanitizeEntity; '+' is a blank, as in URLs.
func DesanitizeEntity(s string) (string, error) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '+':
			b = append(b, ' ')
		case '%':
			if i+2 >= len(s) {
				return "", fmt.Errorf("%q is not a percent-encoded name: it ends in the middle of a character", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%q is not a percent-encoded name: %q is no hexadecimal number", s, s[i+1:i+3])
			}
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return string(b), nil
}
