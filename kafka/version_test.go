package kafka_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// releases are Kafka's values of inter.broker.protocol.version from 0.9.0 to
// 3.9, in order; what follows the colon is the last one, which the bare release
// means.
var releases = []struct {
	bare string
	ivs  []string
}{
	{"0.9.0", []string{"0.9.0"}},
	{"0.10.0", []string{"0.10.0-IV0", "0.10.0-IV1"}},
	{"0.10.1", []string{"0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2"}},
	{"0.10.2", []string{"0.10.2-IV0"}},
	{"0.11.0", []string{"0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2"}},
	{"1.0", []string{"1.0-IV0"}},
	{"1.1", []string{"1.1-IV0"}},
	{"2.0", []string{"2.0-IV0", "2.0-IV1"}},
	{"2.1", []string{"2.1-IV0", "2.1-IV1", "2.1-IV2"}},
	{"2.2", []string{"2.2-IV0", "2.2-IV1"}},
	{"2.3", []string{"2.3-IV0", "2.3-IV1"}},
	{"2.4", []string{"2.4-IV0", "2.4-IV1"}},
	{"2.5", []string{"2.5-IV0"}},
	{"2.6", []string{"2.6-IV0"}},
	{"2.7", []string{"2.7-IV0", "2.7-IV1", "2.7-IV2"}},
	{"2.8", []string{"2.8-IV0", "2.8-IV1"}},
	{"3.0", []string{"3.0-IV0", "3.0-IV1"}},
	{"3.1", []string{"3.1-IV0"}},
	{"3.2", []string{"3.2-IV0"}},
	{"3.3", []string{"3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3"}},
	{"3.4", []string{"3.4-IV0"}},
	{"3.5", []string{"3.5-IV0", "3.5-IV1", "3.5-IV2"}},
	{"3.6", []string{"3.6-IV0", "3.6-IV1", "3.6-IV2"}},
	{"3.7", []string{"3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4"}},
	{"3.8", []string{"3.8-IV0"}},
	{"3.9", []string{"3.9-IV0"}},
}

func mustParse(t *testing.T, s string) kafka.ProtocolVersion {
	t.Helper()
	v, err := kafka.ParseProtocolVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Every release and internal version is read, they are in order, a bare release
// is its last internal version, and patch numbers do not matter.
func TestEveryProtocolVersion(t *testing.T) {
	var last kafka.ProtocolVersion
	for _, r := range releases {
		for _, iv := range r.ivs {
			v := mustParse(t, iv)
			if !last.Less(v) || v.Less(last) || !v.AtLeast(v) {
				t.Errorf("%s is not after %s", v, last)
			}
			if again := mustParse(t, v.String()); again != v {
				t.Errorf("%s printed as %s, read as %s", iv, v, again)
			}
			last = v
		}
		for _, s := range []string{r.bare, r.bare + ".0", r.bare + ".2", " " + r.bare + "\n"} {
			if v := mustParse(t, s); v != last {
				t.Errorf("%q is %s, want %s", s, v, last)
			}
		}
	}
}

// The versions that behaviour hangs on are those of the names.
func TestNamedProtocolVersions(t *testing.T) {
	for s, v := range map[string]kafka.ProtocolVersion{
		"0.9.0": kafka.V0_9_0, "0.10.0-IV1": kafka.V0_10_0IV1, "0.10.2-IV0": kafka.V0_10_2IV0, "0.11.0-IV0": kafka.V0_11_0IV0, "1.0-IV0": kafka.V1_0IV0,
		"1.1-IV0": kafka.V1_1IV0, "2.1-IV0": kafka.V2_1IV0, "2.2-IV0": kafka.V2_2IV0, "2.3-IV0": kafka.V2_3IV0, "2.4-IV0": kafka.V2_4IV0, "2.4-IV1": kafka.V2_4IV1, "2.6-IV0": kafka.V2_6IV0,
		"2.7-IV0": kafka.V2_7IV0, "2.7-IV2": kafka.V2_7IV2, "2.8-IV0": kafka.V2_8IV0, "2.8-IV1": kafka.V2_8IV1, "3.0-IV0": kafka.V3_0IV0,
		"3.2-IV0": kafka.V3_2IV0, "3.3-IV0": kafka.V3_3IV0, "3.4-IV0": kafka.V3_4IV0, "3.9-IV0": kafka.V3_9IV0,
	} {
		if got := mustParse(t, s); got != v {
			t.Errorf("%s is %v, the name says %v", s, got, v)
		}
	}
	for s, want := range map[string]string{"0.10": "0.10.2-IV0", "0.9": "0.9-IV0", "0.9.0.1": "0.9-IV0", "2.4.1": "2.4-IV1", "0.10.2.2": "0.10.2-IV0", "0.11.0.3": "0.11.0-IV2"} {
		if got := mustParse(t, s).String(); got != want {
			t.Errorf("%s is %s, want %s", s, got, want)
		}
	}
}

// What is no release from 0.9 to 3.9 is refused, and so is an internal version
// that a release never had.
func TestBadProtocolVersions(t *testing.T) {
	for _, s := range []string{"", "2", "2.", ".4", "2.x", "-1.2", "2.4-", "2.4-IV", "2.4-iv1", "2.4-IV2", "2.4-IV-1", "2.7-IV3", "3.9-IV1", "0.10.2-IV1", "0.9.0-IV1",
		"0.8.2", "0.8.2.0", "0.9.1", "0.10.3", "0.11.1", "0.12.0", "1.2", "2.9", "3.10", "4.0", "4.0-IV0", "2.4.1.2.3", "latest"} {
		if v, err := kafka.ParseProtocolVersion(s); err == nil {
			t.Errorf("%q was read as %s", s, v)
		}
	}
}

func FuzzProtocolVersion(f *testing.F) {
	for _, r := range releases {
		f.Add(r.bare)
		f.Add(r.ivs[0])
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := kafka.ParseProtocolVersion(s)
		if err != nil {
			return
		}
		if again, err := kafka.ParseProtocolVersion(v.String()); err != nil || again != v {
			t.Errorf("%q is %s, which is read as %s (%v)", s, v, again, err)
		}
	})
}
