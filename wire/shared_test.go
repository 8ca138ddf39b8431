package wire

import (
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/control"
)

func updateMetadata(t *testing.T, common *Shared, version int16, body []byte) *control.UpdateMetadataRequest {
	t.Helper()
	req, _, err := decodeRequest(control.UpdateMetadataKey, version, body, common)
	if err != nil {
		t.Fatal(err)
	}
	return req.(*control.UpdateMetadataRequest)
}

// Brokers that are told the same have it once, with the header of their own; what
// differs in a byte, in the version or cannot be read is no one else's.
func TestSharedMetadata(t *testing.T) {
	common := &Shared{}
	for version := int16(0); version <= MaxVersion(control.UpdateMetadataKey); version++ {
		r := goldenRequest(control.UpdateMetadataKey, version).(*control.UpdateMetadataRequest)
		body := AppendRequest(nil, r, version)
		r.BrokerEpoch++
		other := AppendRequest(nil, r, version)
		r.Metadata.Partitions[0].LeaderEpoch++
		news := AppendRequest(nil, r, version)

		first := updateMetadata(t, common, version, body)
		second := updateMetadata(t, common, version, other)
		if first.Metadata != second.Metadata {
			t.Errorf("v%d: the same metadata twice", version)
		}
		if version >= 5 && second.BrokerEpoch != first.BrokerEpoch+1 {
			t.Errorf("v%d: broker epochs %d and %d", version, first.BrokerEpoch, second.BrokerEpoch)
		}
		if d := cmp.Diff(updateMetadata(t, nil, version, body), first); d != "" {
			t.Errorf("v%d: %s", version, d)
		}
		if got := updateMetadata(t, common, version, news); got.Metadata == first.Metadata || got.Metadata.Partitions[0].LeaderEpoch == first.Metadata.Partitions[0].LeaderEpoch {
			t.Errorf("v%d: news were taken for what was known", version)
		}
		for range 2 {
			for _, bad := range [][]byte{body[:len(body)-1], append(body[:len(body):len(body)], 0)} {
				if _, _, err := decodeRequest(control.UpdateMetadataKey, version, bad, common); err == nil {
					t.Errorf("v%d: a request of another length was read", version)
				}
			}
		}
		runtime.KeepAlive(first)
	}
}

// TestSharedAtOnce: connections are read by many goroutines.
func TestSharedAtOnce(t *testing.T) {
	common := &Shared{}
	r := goldenRequest(control.UpdateMetadataKey, 8)
	body := AppendRequest(nil, r, 8)
	var all sync.WaitGroup
	got := make([]*control.Metadata, 20)
	for i := range got {
		all.Go(func() {
			req, _, err := decodeRequest(control.UpdateMetadataKey, 8, body, common)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = req.(*control.UpdateMetadataRequest).Metadata
		})
	}
	all.Wait()
	for _, m := range got {
		if m != got[0] {
			t.Fatal("the same metadata twice")
		}
	}
}

// What no broker has any more is not held on to.
func TestSharedHoldsNothing(t *testing.T) {
	common := &Shared{}
	updateMetadata(t, common, 8, AppendRequest(nil, goldenRequest(control.UpdateMetadataKey, 8), 8))
	for common.last[0].metadata.Value() != nil {
		runtime.GC()
	}
	for i := range 3 * sharedRequests { // and few are remembered
		r := goldenRequest(control.UpdateMetadataKey, 8).(*control.UpdateMetadataRequest)
		r.Metadata.Partitions[0].LeaderEpoch = int32(i)
		updateMetadata(t, common, 8, AppendRequest(nil, r, 8))
	}
}
