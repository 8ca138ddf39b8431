package zkpaths

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// object is a JSON object with names exactly as written: encoding/json matches
// struct fields in any case, which Kafka does not. Of a repeated name the last
// value counts, as for Kafka.
type object map[string]json.RawMessage

// parseObject reads the first JSON value of data, which must be an object. Like
// Kafka's reader it does not look at what stands behind that value.
func parseObject(data []byte) (object, error) {
	switch {
	case data == nil:
		return nil, errors.New("has null data")
	case len(data) == 0:
		return nil, errors.New("has empty data")
	case !utf8.Valid(data):
		return nil, errors.New("is not UTF-8 text")
	}
	var raw json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&raw); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	return asObject(raw)
}

func asObject(raw json.RawMessage) (object, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("is not a JSON object")
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	return o, nil
}

func (o object) has(name string) bool { _, ok := o[name]; return ok }

func (o object) get(name string) (json.RawMessage, error) {
	raw, ok := o[name]
	if !ok {
		return nil, fmt.Errorf("lacks the field %q", name)
	}
	return bytes.TrimSpace(raw), nil
}

func field(name string, err error) error { return fmt.Errorf("field %q: %w", name, err) }

// integer reads a number that is written as an integer and fits into bits.
func (o object) integer(name string, bits int) (int64, error) {
	raw, err := o.get(name)
	if err != nil {
		return 0, err
	}
	n, err := asInteger(raw, bits)
	if err != nil {
		return 0, field(name, err)
	}
	return n, nil
}

func asInteger(raw json.RawMessage, bits int) (int64, error) {
	n, err := strconv.ParseInt(string(raw), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("is not a %d-bit integer: %.40s", bits, raw)
	}
	return n, nil
}

func (o object) int32(name string) (int32, error) {
	n, err := o.integer(name, 32)
	return int32(n), err
}

func (o object) broker(name string) (kafka.BrokerID, error) {
	n, err := o.integer(name, 32)
	return kafka.BrokerID(n), err
}

func (o object) text(name string) (string, error) {
	raw, err := o.get(name)
	if err != nil {
		return "", err
	}
	s, err := asText(raw)
	if err != nil {
		return "", field(name, err)
	}
	return s, nil
}

func asText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("is not a string: %.40s", raw)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("is not a string: %w", err)
	}
	return s, nil
}

// textInteger reads a number that Kafka writes as a string. The plain number
// is taken as well: it cannot mean anything else.
func (o object) textInteger(name string) (int64, error) {
	raw, err := o.get(name)
	if err != nil {
		return 0, err
	}
	if s, err := asText(raw); err == nil {
		raw = json.RawMessage(s)
	}
	n, err := asInteger(raw, 64)
	if err != nil {
		return 0, field(name, err)
	}
	return n, nil
}

func (o object) object(name string) (object, error) {
	raw, err := o.get(name)
	if err != nil {
		return nil, err
	}
	inner, err := asObject(raw)
	if err != nil {
		return nil, field(name, err)
	}
	return inner, nil
}

func (o object) list(name string) ([]json.RawMessage, error) {
	raw, err := o.get(name)
	if err != nil {
		return nil, err
	}
	if raw[0] != '[' {
		return nil, field(name, fmt.Errorf("is not a list: %.40s", raw))
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, field(name, err)
	}
	for i := range list {
		list[i] = bytes.TrimSpace(list[i])
	}
	return list, nil
}

func (o object) brokers(name string) ([]kafka.BrokerID, error) {
	list, err := o.list(name)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	ids := make([]kafka.BrokerID, len(list))
	for i, raw := range list {
		n, err := asInteger(raw, 32)
		if err != nil {
			return nil, field(name, err)
		}
		ids[i] = kafka.BrokerID(n)
	}
	return ids, nil
}

// names gives the object's names in order, so that what is reported of several
// errors does not depend on chance.
func (o object) names() []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lexer walks over the usual form of a payload without allocating; blanks may
// stand anywhere. Escapes, floats, nested values and what is no JSON it
// refuses: such input is read again with encoding/json, which says what is wrong.
type lexer struct {
	b []byte
	i int
}

func (x *lexer) space() {
	for x.i < len(x.b) {
		switch x.b[x.i] {
		case ' ', '\t', '\n', '\r':
			x.i++
		default:
			return
		}
	}
}

// take skips blanks and then one c; it tells whether there was one.
func (x *lexer) take(c byte) bool {
	if x.i < len(x.b) && x.b[x.i] == c {
		x.i++
		return true
	}
	x.space()
	if x.i < len(x.b) && x.b[x.i] == c {
		x.i++
		return true
	}
	return false
}

// end tells whether only blanks are left.
func (x *lexer) end() bool {
	x.space()
	return x.i == len(x.b)
}

// text reads a string of plain ASCII without escapes.
func (x *lexer) text() ([]byte, bool) {
	if !x.take('"') {
		return nil, false
	}
	for start := x.i; x.i < len(x.b); x.i++ {
		switch c := x.b[x.i]; {
		case c == '"':
			x.i++
			return x.b[start : x.i-1], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// int32 reads an integer as JSON writes it: no leading zero, no plus sign. What
// follows it is for the caller to check.
func (x *lexer) int32() (int32, bool) {
	x.space()
	negative := x.i < len(x.b) && x.b[x.i] == '-'
	if negative {
		x.i++
	}
	start, n := x.i, int64(0)
	for x.i < len(x.b) && x.b[x.i]-'0' <= 9 && x.i-start < 10 {
		n = n*10 + int64(x.b[x.i]-'0')
		x.i++
	}
	if x.i == start || x.b[start] == '0' && x.i-start > 1 {
		return 0, false
	}
	if negative {
		n = -n
	}
	return int32(n), n == int64(int32(n))
}

// brokers reads a list of broker ids and appends it to ids.
func (x *lexer) brokers(ids []kafka.BrokerID) ([]kafka.BrokerID, bool) {
	if !x.take('[') {
		return ids, false
	}
	if x.take(']') {
		return ids, true
	}
	for {
		n, ok := x.int32()
		if !ok {
			return ids, false
		}
		ids = append(ids, kafka.BrokerID(n))
		if x.take(',') {
			continue
		}
		return ids, x.take(']')
	}
}

// appendInt appends a number in decimal.
func appendInt[T ~int | ~int32 | ~int64](b []byte, n T) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}

// appendBrokers appends [1,2,3].
func appendBrokers(b []byte, ids []kafka.BrokerID) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, id)
	}
	return append(b, ']')
}

const hex = "0123456789abcdef"

// appendText appends a JSON string. Only what JSON forbids is escaped.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // a broken byte comes out as U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
