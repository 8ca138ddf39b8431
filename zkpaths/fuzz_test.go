package zkpaths_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// fuzz checks the law of one codec on any bytes, beginning with all that the
// tables and the golden files have of it.
func fuzz(f *testing.F, name string) {
	var c codec
	for _, k := range codecs {
		if k.name == name {
			c = k
		}
	}
	if c.decode == nil {
		f.Fatalf("no codec %q", name)
	}
	for _, e := range examples {
		if e.codec == name {
			f.Add([]byte(e.data))
		}
	}
	for _, e := range tolerated {
		if e.codec == name {
			f.Add([]byte(e.data))
		}
	}
	for _, e := range unreadable {
		if e.codec == name {
			f.Add([]byte(e.data))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { check(t, c, data) })
}

func FuzzController(f *testing.F)      { fuzz(f, "controller") }
func FuzzEpoch(f *testing.F)           { fuzz(f, "controller_epoch") }
func FuzzBroker(f *testing.F)          { fuzz(f, "broker") }
func FuzzTopic(f *testing.F)           { fuzz(f, "topic") }
func FuzzPartitionState(f *testing.F)  { fuzz(f, "state") }
func FuzzReassignStrict(f *testing.F)  { fuzz(f, "reassign_strict") }
func FuzzReassignLenient(f *testing.F) { fuzz(f, "reassign_lenient") }
func FuzzPreferred(f *testing.F)       { fuzz(f, "preferred") }
func FuzzISRNotification(f *testing.F) { fuzz(f, "isr") }
func FuzzLogDirEvent(f *testing.F)     { fuzz(f, "log_dir") }
func FuzzConfig(f *testing.F)          { fuzz(f, "config") }
func FuzzConfigChange(f *testing.F)    { fuzz(f, "config_change") }
func FuzzClusterID(f *testing.F)       { fuzz(f, "cluster_id") }
func FuzzProducerBlock(f *testing.F)   { fuzz(f, "producer_block") }
func FuzzFeatures(f *testing.F)        { fuzz(f, "features") }
func FuzzMigration(f *testing.F)       { fuzz(f, "migration") }
func FuzzConsumerOffset(f *testing.F)  { fuzz(f, "consumer_offset") }
func FuzzACLs(f *testing.F)            { fuzz(f, "acls") }

// FuzzFastAndSlow: whatever the hand-written readers take, encoding/json reads
// as the same.
func FuzzFastAndSlow(f *testing.F) {
	for _, e := range examples {
		f.Add([]byte(e.data))
	}
	for _, e := range tolerated {
		f.Add([]byte(e.data))
	}
	for _, e := range unreadable {
		f.Add([]byte(e.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}

func FuzzDelegationToken(f *testing.F) {
	f.Add([]byte(token))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := zkpaths.DecodeDelegationToken("/delegation_token/tokens/x", data); err != nil && tok.TokenID != "" {
			t.Errorf("an error with a token: %v %v", tok, err)
		}
	})
}

func FuzzSanitizeEntity(f *testing.F) {
	for _, s := range []string{"", "a b+c", "c:1", "CN=a b,O=é*", "<default>", "~", "100%", "\xff", "a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := zkpaths.SanitizeEntity(name)
		if back, err := zkpaths.DesanitizeEntity(s); err != nil || back != name {
			t.Errorf("%q -> %q -> %q, %v", name, s, back, err)
		}
		_, _ = zkpaths.DesanitizeEntity(name) // any text, no panic
	})
}
