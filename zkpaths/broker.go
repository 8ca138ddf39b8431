package zkpaths

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const brokerRemedy = "the broker counts as absent until it registers again; restart it, or remove the node if no broker owns it"

// Registration is the payload of /brokers/ids/N (spec/controller.md §1.4,
// spec/broker.md §1.2). The broker epoch is the node's czxid, not in here.
type Registration struct {
	kafka.Broker
	Version   int    // 1 to 5; higher ones are read like 5
	Host      string // as read, for clients before listeners had names; "" without HasHost
	HasHost   bool
	Port      int32 // -1: none
	JMXPort   int32 // -1: none
	Timestamp int64 // milliseconds
}

// EncodeBroker gives the payload in Version 1 to 5; anything else means 5.
// host and port are not taken from r but are those of the first endpoint whose
// protocol is PLAINTEXT, or null and -1, as in Kafka.
func EncodeBroker(r Registration) []byte {
	if r.Version < 1 || r.Version > 5 {
		r.Version = 5
	}
	b := append(make([]byte, 0, 256), `{"version":`...)
	b = appendInt(b, r.Version)
	b = append(b, `,"host":`...)
	i := slices.IndexFunc(r.Endpoints, func(e kafka.Endpoint) bool { return e.Protocol == kafka.Plaintext })
	if i < 0 {
		b = append(b, `null,"port":-1`...)
	} else {
		b = appendText(b, r.Endpoints[i].Host)
		b = append(b, `,"port":`...)
		b = appendInt(b, r.Endpoints[i].Port)
	}
	if r.Version >= 2 {
		b = append(b, `,"endpoints":[`...)
		for i, e := range r.Endpoints {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, FormatEndpoint(e))
		}
		b = append(b, ']')
	}
	b = append(b, `,"jmx_port":`...)
	b = appendInt(b, r.JMXPort)
	b = append(b, `,"timestamp":"`...)
	b = appendInt(b, r.Timestamp)
	b = append(b, '"')
	if r.Version >= 3 && r.HasRack {
		b = append(b, `,"rack":`...)
		b = appendText(b, r.Rack)
	}
	if r.Version >= 4 {
		b = append(b, `,"listener_security_protocol_map":{`...)
		for i, e := range r.Endpoints {
			if slices.ContainsFunc(r.Endpoints[:i], func(o kafka.Endpoint) bool { return o.Listener == e.Listener }) {
				continue
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, e.Listener)
			b = append(b, ':')
			b = appendText(b, e.Protocol.String())
		}
		b = append(b, '}')
	}
	if r.Version >= 5 {
		b = appendBrokerFeatures(b, r.Features)
	}
	return append(b, '}')
}

func appendBrokerFeatures(b []byte, features map[string]kafka.VersionRange) []byte {
	b = append(b, `,"features":{`...)
	for i, name := range slices.Sorted(maps.Keys(features)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = append(b, `:{"min_version":`...)
		b = appendInt(b, int(features[name].Min))
		b = append(b, `,"max_version":`...)
		b = appendInt(b, int(features[name].Max))
		b = append(b, '}')
	}
	return append(b, '}')
}

// DecodeBroker reads the payload of a registration of any version from 1 on.
// Null data is a *PayloadError too: between the two halves of a registration
// the node has none, and its change follows.
func DecodeBroker(id kafka.BrokerID, data []byte) (Registration, error) {
	r, err := decodeBroker(data)
	if err != nil {
		return Registration{}, &PayloadError{Path: BrokerPath(id), Reason: err.Error(), Remedy: brokerRemedy}
	}
	r.ID = id
	return r, nil
}

func decodeBroker(data []byte) (r Registration, err error) {
	o, err := parseObject(data)
	if err != nil {
		return r, err
	}
	version, err := o.int32("version")
	if err != nil {
		return r, err
	}
	if version < 1 {
		return r, fmt.Errorf("has the unsupported version %d", version)
	}
	r.Version, r.Port, r.JMXPort = int(version), -1, -1
	if o.has("host") && string(o["host"]) != "null" {
		if r.Host, err = o.text("host"); err != nil {
			return r, err
		}
		r.HasHost = true
	}
	if o.has("port") {
		if r.Port, err = o.int32("port"); err != nil {
			return r, err
		}
	}
	if o.has("jmx_port") {
		if r.JMXPort, err = o.int32("jmx_port"); err != nil {
			return r, err
		}
	}
	if o.has("timestamp") { // nobody decides by it
		r.Timestamp, _ = o.textInteger("timestamp")
	}
	if o.has("rack") && string(o["rack"]) != "null" {
		if r.Rack, err = o.text("rack"); err != nil {
			return r, err
		}
		r.HasRack = true
	}
	if version == 1 {
		if !r.HasHost || r.Port < 0 {
			return r, errors.New("is of version 1 and lacks host or port")
		}
		r.Endpoints = []kafka.Endpoint{{Listener: "PLAINTEXT", Protocol: kafka.Plaintext, Host: r.Host, Port: r.Port}}
		return r, nil
	}
	if r.Endpoints, err = decodeEndpoints(o); err != nil {
		return r, err
	}
	r.Features, err = decodeBrokerFeatures(o)
	return r, err
}

func decodeEndpoints(o object) ([]kafka.Endpoint, error) {
	var protocols object
	var err error
	const protocolMap = "listener_security_protocol_map"
	if o.has(protocolMap) {
		if protocols, err = o.object(protocolMap); err != nil {
			return nil, err
		}
	}
	list, err := o.list("endpoints")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("has no endpoints")
	}
	endpoints := make([]kafka.Endpoint, len(list))
	for i, raw := range list {
		s, err := asText(raw)
		if err != nil {
			return nil, field("endpoints", err)
		}
		e, err := ParseEndpoint(s)
		if err != nil {
			return nil, field("endpoints", err)
		}
		name := e.Listener
		if protocols != nil {
			if name, err = protocols.text(e.Listener); err != nil {
				return nil, field(protocolMap, err)
			}
		}
		if e.Protocol, err = kafka.ParseSecurityProtocol(name); err != nil {
			return nil, fmt.Errorf("listener %q: %w", e.Listener, err)
		}
		endpoints[i] = e
	}
	return endpoints, nil
}

func decodeBrokerFeatures(o object) (map[string]kafka.VersionRange, error) {
	if !o.has("features") {
		return nil, nil
	}
	all, err := o.object("features")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	features := make(map[string]kafka.VersionRange, len(all))
	for _, name := range all.names() {
		f, err := all.object(name)
		if err != nil {
			return nil, field("features", err)
		}
		low, err := f.integer("min_version", 16)
		if err != nil {
			return nil, field("features", err)
		}
		high, err := f.integer("max_version", 16)
		if err != nil {
			return nil, field("features", err)
		}
		features[name] = kafka.VersionRange{Min: int16(low), Max: int16(high)}
	}
	return features, nil
}

// FormatEndpoint gives LISTENER://host:port, an IPv6 address in brackets.
func FormatEndpoint(e kafka.Endpoint) string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return e.Listener + "://" + host + ":" + strconv.Itoa(int(e.Port))
}

// ParseEndpoint reads what FormatEndpoint writes; the protocol is left PLAINTEXT
// since the text does not say it. Listener names are upper case.
func ParseEndpoint(s string) (kafka.Endpoint, error) {
	bad := fmt.Errorf("%q is not LISTENER://host:port", s)
	listener, address, ok := strings.Cut(s, "://")
	i := strings.LastIndexByte(address, ':')
	if !ok || listener == "" || i < 0 {
		return kafka.Endpoint{}, bad
	}
	host := address[:i]
	if strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]") || host == "[" {
		return kafka.Endpoint{}, bad
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	for _, r := range host {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-%._:", r)) {
			return kafka.Endpoint{}, bad
		}
	}
	port, err := strconv.ParseInt(address[i+1:], 10, 32)
	if err != nil || port < -1 || port > 65535 {
		return kafka.Endpoint{}, bad
	}
	return kafka.Endpoint{Listener: strings.ToUpper(listener), Host: host, Port: int32(port)}, nil
}
