package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
)

// fixed is what no reader of JSON objects likes, or what only looks well.
var fixed = [][]byte{
	nil, {}, {0}, []byte("null"), []byte("[]"), []byte("{}"), []byte(`""`), []byte("-1"), []byte("x"), []byte("{"), []byte(`{"version":1`),
	[]byte("\xff\xfe{}"), []byte("{\"a\":\"\xc3\x28\"}"), []byte("\xef\xbb\xbf{}"), []byte(`{"version":0}`), []byte(`{"version":99}`), []byte(`{"version":1}`),
	[]byte(`{"version":"1"}`), []byte(`{"version":1e400}`), []byte(strings.Repeat("[", 100_000)), []byte(strings.Repeat(`{"a":`, 20_000)),
	[]byte(strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000)),
	bytes.Repeat([]byte{'x'}, 900_000), []byte(`{"version":1,"x":"` + strings.Repeat("y", 900_000) + `"}`), []byte("2147483647"), []byte("9223372036854775807"), []byte("1 "), []byte("007"),
}

// strange are JSON values that may stand where another was.
var strange = []string{
	"null", `""`, `"x"`, "[]", "{}", "[[]]", "true", "0", "-0", "-1", "-2", "1.5", "1e3", "1e400", "2147483647", "2147483646", "2147483648", "-2147483648", "-5",
	"9223372036854775807", "9223372036854775808", `"\u0000"`, `"a/b"`, `"../h0"`, `"` + strings.Repeat("t", 300) + `"`, "[null]", "[-1]", "[-7,101]", "[1,1]", "[99]", "[1,99]",
	"[2147483647]", "[2147483648]", `["1"]`, "[1.0]", `{"0":[]}`, `{"0":null}`, `{"-1":[1]}`, `{"2147483647":[1]}`, `{"2147483648":[1]}`, `{"01":[1]}`, `{"0":[-3]}`,
	`{"0":[-3,101]}`, `{"7":[1,2]}`, `{"0":[1],"0":[2]}`, `["PLAINTEXT://h:99999"]`, `["PLAINTEXT://:0"]`, `["://"]`, `["SSL://h:1"]`, `["PLAINTEXT://h1:-1"]`,
	"[" + strings.Repeat("1,", 10_000) + "2]", `{"x":{"min_version":1,"max_version":0}}`, `{"f":{"max_version_level":3}}`, strings.Repeat("[", 500) + strings.Repeat("]", 500),
}

// garble gives a payload to put in place of a good one.
func garble(rng *rand.Rand, good []byte) []byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(good))
	dec.UseNumber()
	if dec.Decode(&v) != nil || rng.Intn(5) == 0 {
		return fixed[rng.Intn(len(fixed))]
	}
	switch rng.Intn(8) {
	case 0: // cut off
		return good[:rng.Intn(len(good))]
	case 1: // one byte is another
		bad := slices.Clone(good)
		bad[rng.Intn(len(bad))] = byte(rng.Intn(256))
		return bad
	case 2: // something behind it
		return append(slices.Clone(good), "}garbage\x00"...)
	}
	n := 1
	if rng.Intn(4) == 0 {
		n = 2
	}
	for range n {
		at := rng.Intn(count(v))
		v = replace(rng, v, &at)
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%v: %v", v, err))
	}
	return out
}

// count tells how many values there are in v.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += count(e)
		}
	case []any:
		for _, e := range v {
			n += count(e)
		}
	}
	return n
}

// raw is JSON as it stands; invalid JSON would be refused, so it is not made here.
func raw(s string) any { return json.RawMessage(s) }

type gone struct{}

// replace puts something strange in place of the value number *at, or drops it.
func replace(rng *rand.Rand, v any, at *int) any {
	if *at == 0 {
		*at--
		if rng.Intn(4) == 0 {
			return gone{}
		}
		return raw(strange[rng.Intn(len(strange))])
	}
	*at--
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if *at < 0 {
				break
			}
			v[k] = replace(rng, v[k], at)
			if _, drop := v[k].(gone); drop {
				delete(v, k)
			}
		}
		return v
	case []any:
		for i := range v {
			if *at < 0 {
				break
			}
			v[i] = replace(rng, v[i], at)
			if _, drop := v[i].(gone); drop {
				return slices.Delete(v, i, i+1)
			}
		}
	}
	return v
}
