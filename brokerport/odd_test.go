package brokerport_test

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// odd draws the fields of a request of package kmsg, which are all exported: what
// clients send, and what none would.
type odd struct{ t *rapid.T }

var (
	oddStrings = []string{"orders", "__consumer_offsets", "none", "", "a/b", "g", "1", "2", "-1", "PLAINTEXT", "segment.bytes", "cleanup.policy", "compact", "consumer",
		"range", strings.Repeat("x", 249), strings.Repeat("x", 250), "\x00", "\xff", "ünï"}
	oddNumbers = []int64{0, 0, 1, 1, 2, 3, 5, 100, 1 << 20, -1, -1, -2, -3, -4, -5, math.MinInt8, math.MaxInt8, math.MinInt16, math.MaxInt16, math.MinInt32, math.MaxInt32,
		math.MinInt64, math.MaxInt64}
	oddIDs = [][16]byte{{}, orders.id, {1}, {15: 1}}
)

func (o odd) bytes() []byte {
	switch rapid.IntRange(0, 4).Draw(o.t, "bytes") {
	case 0:
		return nil
	case 1:
		return rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(o.t, "random")
	case 2: // a batch with one damaged byte
		b := slices.Clone(batch("a", "b"))
		b[rapid.IntRange(0, len(b)-1).Draw(o.t, "at")] ^= rapid.Byte().Draw(o.t, "with")
		return b
	}
	return batch("a")
}

// fill draws a value. Nothing is to be waited for longer than a moment.
func (o odd) fill(name string, v reflect.Value) {
	number := func() int64 { return rapid.SampledFrom(oddNumbers).Draw(o.t, name) }
	switch {
	case name == "Version" || name == "UnknownTags" || name == "ThrottleMillis":
	case strings.HasSuffix(name, "WaitMillis") || strings.HasPrefix(name, "Timeout"):
		v.SetInt(rapid.SampledFrom([]int64{-1, 0, 1, 20}).Draw(o.t, name))
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes(o.bytes())
	case v.Type() == reflect.TypeFor[[16]byte]():
		v.Set(reflect.ValueOf(rapid.SampledFrom(oddIDs).Draw(o.t, name)))
	default:
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				o.fill(v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Slice:
			if n := rapid.IntRange(-1, 3).Draw(o.t, name); n >= 0 {
				v.Set(reflect.MakeSlice(v.Type(), n, n))
				for i := range n {
					o.fill(name+"[]", v.Index(i))
				}
			}
		case reflect.Pointer:
			if rapid.Bool().Draw(o.t, name) {
				v.Set(reflect.New(v.Type().Elem()))
				o.fill(name, v.Elem())
			}
		case reflect.String:
			v.SetString(rapid.SampledFrom(oddStrings).Draw(o.t, name))
		case reflect.Bool:
			v.SetBool(rapid.Bool().Draw(o.t, name))
		case reflect.Float64:
			v.SetFloat(float64(number()))
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v.SetInt(number()) // cut to its size
		default:
			o.t.Fatalf("field %s of kind %s", name, v.Kind())
		}
	}
}

// Whatever is well-formed is answered, in every version that is advertised: with
// an error or without, and never by a closed connection.
func TestOddRequestsAreAnswered(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	b.lead(t, topic{"__consumer_offsets", kafka.TopicID{4}, 2})
	rows := slices.DeleteFunc(b.port.Table(), func(r wire.APIVersion) bool {
		switch kmsg.Key(r.Key) {
		case kmsg.LeaderAndISR, kmsg.StopReplica, kmsg.UpdateMetadata: // of the controller, which is believed
			return true
		case kmsg.JoinGroup, kmsg.SyncGroup: // wait for other members
			return true
		}
		return false
	})
	rapid.Check(t, func(rt *rapid.T) {
		row := rapid.SampledFrom(rows).Draw(rt, "request")
		version := rapid.Int16Range(row.Min, row.Max).Draw(rt, "version")
		req := kmsg.RequestForKey(row.Key)
		odd{rt}.fill("", reflect.ValueOf(req).Elem())
		req.SetVersion(version)
		if r, ok := req.(*kmsg.ProduceRequest); ok && r.Acks == 0 {
			r.Acks = 1 // else there is no answer
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c := dial(t, b)
		defer c.Close()
		if _, err := c.Request(ctx, req); err != nil {
			rt.Fatalf("%s v%d %+v: %v", kmsg.NameForKey(row.Key), version, req, err)
		}
	})
}
