package brokers

import (
	"reflect"
	"slices"
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// releases are those that Options.Release tells apart, in order.
var releases = []kafka.ProtocolVersion{{Minor: 8}, {Minor: 9}, {Minor: 1000}, {Minor: 1001}, {Minor: 1002}, {Minor: 1100}, {Major: 1}, {Major: 1, Minor: 1},
	{Major: 2}, {Major: 2, Minor: 1}, {Major: 2, Minor: 2}, {Major: 2, Minor: 3}, {Major: 2, Minor: 4}, {Major: 2, Minor: 5}, {Major: 2, Minor: 6},
	{Major: 2, Minor: 7}, {Major: 2, Minor: 8}, {Major: 3}, {Major: 3, Minor: 1}, {Major: 3, Minor: 2}, {Major: 3, Minor: 3}, {Major: 3, Minor: 4},
	{Major: 3, Minor: 5}, {Major: 3, Minor: 6}, {Major: 3, Minor: 7}, {Major: 3, Minor: 8}, {Major: 3, Minor: 9}}

func release(major, minor int) kafka.ProtocolVersion {
	return kafka.ProtocolVersion{Major: major, Minor: minor}
}

// Each row of spec/broker.md §0.3, and what else a release decides, begins and ends
// at the release the spec names: from is the first that does so, until the first
// that does not any more. A boundary inside a release line (2.0.1, 3.4.1) is the
// line's next or own, as options.go says. Brokers run under their own protocol
// version here, or under 2.6 where that is what makes the difference.
func TestReleaseBoundaries(t *testing.T) {
	always, never := release(0, 0), release(9, 0)
	rows := map[string]struct{ from, until kafka.ProtocolVersion }{
		"checkAtFullLag": {always, release(0, 1002)}, "brokerEpochs": {release(2, 2), never}, "refusesHigherEpoch": {release(2, 2), release(2, 5)},
		"stopEpochs": {release(2, 6), never}, "stopRefusesEqual": {release(2, 6), release(3, 4)}, "topicIDs": {release(2, 8), never},
		"partitionEpochGuard": {release(3, 3), never}, "joinersMustLive": {release(3, 3), never}, "failedMeter": {release(0, 1100), never},
		"metersAttempts": {always, release(2, 4)}, "checksEndpoints": {release(2, 1), never}, "controllerFromZK": {always, release(3, 0)},
		"announces": {release(0, 9), never}, "swallowsErrors": {always, release(1, 1)}, "forgetsUnsent": {release(2, 7), release(3, 0)},
		"asksByTopicID": {release(3, 3), never}, "knowsInvalidRequest": {release(3, 2), never}, "knowsIneligible": {release(3, 3), never},
		"messageLag": {always, release(0, 9)}, "previousFetch": {release(0, 1002), never}, "keepsLeaderEnd": {release(3, 3), never},
		"failuresTouch": {always, release(2, 4)}, "joinsAtEpochStart": {release(2, 1), never}, "equalEndsStay": {release(2, 2), never},
		"waitsForOutsiders": {release(0, 1002), never}, "outsidersMustLive": {release(3, 6), never}, "effectiveMinISR": {release(3, 7), never},
		"everyFetchRaises": {always, release(2, 4)}, "answersOwedHW": {release(2, 4), release(2, 6)}, "silentCommits": {release(2, 7), release(3, 1)},
		"epochRefetches": {release(2, 1), never}, "cutsToHW": {always, release(0, 1100)}, "startsAtEnd": {always, release(1, 1)},
		"fetchTruncates": {release(2, 7), never}, "startsFetching": {release(2, 8), never}, "answersTellEpochs": {release(2, 0), never},
		"tellsEpochs": {release(2, 0), never}, "tellsBrokerEpoch": {release(3, 5), never}, "forgetsOldEpochs": {always, release(1, 0)},
		"addingCountsNot": {release(2, 5), never},
	}
	flags := reflect.TypeFor[behaviour]()
	for i := range flags.NumField() {
		f := flags.Field(i)
		if f.Type.Kind() != reflect.Bool {
			continue
		}
		row, ok := rows[f.Name]
		if !ok {
			t.Errorf("%s: no row says when it holds", f.Name)
		}
		delete(rows, f.Name)
		for _, r := range releases {
			own := r
			own.IV = 9 // its last protocol version
			got := reflect.ValueOf(behaviourOf(Options{Version: own, Release: r})).Field(i).Bool()
			if want := r.AtLeast(row.from) && r.Less(row.until); got != want {
				t.Errorf("%s of release %d.%d: %t", f.Name, r.Major, r.Minor, got)
			}
		}
	}
	for name := range rows {
		t.Errorf("%s is no flag", name)
	}
}

// Who writes the ISR is a matter of the protocol version and then of the release
// (spec/broker.md §0.2), and what the protocol version decides ends with it.
func TestProfiles(t *testing.T) {
	for _, r := range releases {
		own := r
		own.IV = 9
		old := behaviourOf(Options{Version: kafka.V2_6IV0, Release: r})
		want := ProfileA
		if r.AtLeast(release(2, 8)) {
			want = ProfileB
		}
		if old.profile != want {
			t.Errorf("%d.%d under 2.6: profile %s", r.Major, r.Minor, old.profile)
		}
		if r.AtLeast(release(2, 7)) {
			want = ProfileC
		}
		if got := behaviourOf(Options{Version: own, Release: r}).profile; got != want {
			t.Errorf("%d.%d under its own version: profile %s", r.Major, r.Minor, got)
		}
		if old.fetchTruncates || old.startsFetching || old.tellsBrokerEpoch || !old.answersTellEpochs || !old.tellsEpochs {
			t.Errorf("%d.%d under 2.6: %+v", r.Major, r.Minor, old)
		}
	}
	for _, c := range []struct {
		version  string
		profile  Profile
		truncate bool
	}{{"2.7-IV0", ProfileB, false}, {"2.7-IV1", ProfileB, true}, {"2.7-IV2", ProfileC, true}} {
		v, err := kafka.ParseProtocolVersion(c.version)
		if err != nil {
			t.Fatal(err)
		}
		if d := behaviourOf(Options{Version: v, Release: kafka.V3_9IV0}); d.profile != c.profile || d.fetchTruncates != c.truncate || d.startsFetching != c.truncate {
			t.Errorf("%s: profile %s, fetches truncate: %t", c.version, d.profile, d.fetchTruncates)
		}
	}
	if d := behaviourOf(Options{Version: kafka.ProtocolVersion{Minor: 1100, IV: 1}, Release: kafka.V3_9IV0}); !d.cutsToHW {
		t.Error("0.11.0-IV1 does not cut to the high watermark")
	}
}

// The defaults of spec/broker.md §11.1.
func TestDefaults(t *testing.T) {
	type defaults struct{ lag, wait, backoff, checkpoint, retry int64 }
	for version, lag := range map[string]int64{"0.10.2": 10000, "2.3": 10000, "2.4": 30000, "2.5": 30000, "3.9": 30000} {
		v, err := kafka.ParseProtocolVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Version: v, Logs: &LogOptions{}}.withDefaults()
		got := defaults{o.ReplicaLagTimeMax.Milliseconds(), o.ReplicaFetchWait.Milliseconds(), o.Logs.FetchBackoff.Milliseconds(),
			o.Logs.Checkpoint.Milliseconds(), o.ControlledShutdown.RetryBackoff.Milliseconds()}
		if want := (defaults{lag, 500, 1000, 5000, 5000}); got != want {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
		sizes := []int{o.Logs.FetchMinBytes, o.Logs.FetchPartitionBytes, o.Logs.FetchMaxBytes, o.Logs.Fetchers, o.Logs.Topic.MinISR, o.ControlledShutdown.MaxRetries}
		if want := []int{1, 1048576, 10485760, 1, 1, 3}; !slices.Equal(sizes, want) {
			t.Errorf("%s: %v, want %v", version, sizes, want)
		}
	}
	if o := (Options{Version: kafka.V2_6IV0, Release: kafka.ProtocolVersion{Major: 2, Minor: 4}}).withDefaults(); o.ReplicaLagTimeMax.Milliseconds() != 10000 {
		t.Errorf("2.4: %s", o.ReplicaLagTimeMax)
	}
}
