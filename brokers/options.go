package brokers

import (
	"fmt"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Profile says who writes a state znode when an ISR changes, and what a lost
// race does (spec/broker.md §0.2).
type Profile byte

const (
	// ProfileA: the leader writes; after a conflict it tries again at every occasion.
	ProfileA Profile = 'A'
	// ProfileB: the leader writes; after a conflict nothing moves until a LeaderAndIsr.
	ProfileB Profile = 'B'
	// ProfileC: the leader asks the controller (AlterPartition).
	ProfileC Profile = 'C'
)

// String gives the letter.
func (p Profile) String() string { return string(rune(p)) }

// ProfileOf gives the profile of an inter.broker.protocol.version, for the
// Release that it implies.
func ProfileOf(v kafka.ProtocolVersion) Profile {
	switch {
	case v.Less(kafka.V2_4IV0):
		return ProfileA
	case v.Less(kafka.V2_7IV2):
		return ProfileB
	}
	return ProfileC
}

// ReleaseOf gives the Release of a broker of whom only its
// inter.broker.protocol.version is known: below 2.4 and from 2.8 on the release of
// that version. Between them it is 2.8, the first to have profile B, which is what
// most brokers are that still run under such a version (spec/broker.md §0.2).
func ReleaseOf(v kafka.ProtocolVersion) kafka.ProtocolVersion {
	if first := (kafka.ProtocolVersion{Major: 2, Minor: 8}); v.AtLeast(kafka.V2_4IV0) && v.Less(first) {
		return first
	}
	return v
}

// Options is what a broker is told about itself. Zero durations and counts
// mean the default named beside them.
type Options struct {
	ID        kafka.BrokerID
	Endpoints []kafka.Endpoint // advertised; at least one
	Rack      string
	HasRack   bool

	// Version is inter.broker.protocol.version: it chooses the profile and the
	// form of the registration.
	Version kafka.ProtocolVersion
	// Release is the emulated program's own release. The zero value means
	// Version below 2.4, and 3.9 from there on: profile B is what late releases
	// do under an old protocol version. See also ReleaseOf.
	Release kafka.ProtocolVersion

	// InterBrokerListener is where the controller is asked; "" is the first endpoint's.
	InterBrokerListener string

	ReplicaLagTimeMax  time.Duration // replica.lag.time.max.ms: 30 s, below 2.5 10 s
	ReplicaFetchWait   time.Duration // replica.fetch.wait.max.ms: 500 ms; how often a follower outside the ISR knocks
	CatchUp            time.Duration // how long a follower needs to reach the leader; 0 is at once
	Announcements      isrnotify.Options
	RegisterAttempts   int           // against another session's registration: 5
	RegisterRetry      time.Duration // between them: 1 s
	ControlledShutdown ControlledShutdownOptions

	// Logs makes the broker keep records and copy them. Nil: it has none, and
	// Replication says how far followers are.
	Logs *LogOptions
	// Groups makes the broker, if it has Logs, coordinate consumer groups. A nil
	// MemberID makes random ids; Partitions is asked while nobody has told of the
	// offsets topic. Nil: it does not.
	Groups *groups.Options
	// Replication makes the part that knows how far followers are where there are
	// no Logs; nil is one that goes by time and faults alone.
	Replication func(view View) Replication
	// ISRChanged is told of each confirmed change of an ISR that this broker leads,
	// on the loop's goroutine, which waits for it. Nil: nobody is.
	ISRChanged func(kafka.TopicPartition, ISRChange)
}

// ControlledShutdownOptions are Kafka's controlled.shutdown.* keys.
type ControlledShutdownOptions struct {
	Disabled     bool
	MaxRetries   int           // 3
	RetryBackoff time.Duration // 5 s
}

func (o Options) withDefaults() Options {
	if (o.Release == kafka.ProtocolVersion{}) {
		o.Release = o.Version
		if o.Version.AtLeast(kafka.V2_4IV0) {
			o.Release = kafka.V3_9IV0
		}
	}
	if o.ReplicaLagTimeMax == 0 {
		o.ReplicaLagTimeMax = 30 * time.Second
		if o.Release.Less(kafka.ProtocolVersion{Major: 2, Minor: 5}) {
			o.ReplicaLagTimeMax = 10 * time.Second
		}
	}
	setDefault(&o.ReplicaFetchWait, 500*time.Millisecond)
	setDefault(&o.RegisterRetry, time.Second)
	setDefault(&o.ControlledShutdown.RetryBackoff, 5*time.Second)
	setDefault(&o.RegisterAttempts, 5)
	setDefault(&o.ControlledShutdown.MaxRetries, 3)
	if o.Logs != nil {
		logs := o.Logs.withDefaults()
		o.Logs = &logs
	}
	if o.InterBrokerListener == "" && len(o.Endpoints) > 0 {
		o.InterBrokerListener = o.Endpoints[0].Listener
	}
	return o
}

func setDefault[T time.Duration | int](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Validate says what cannot work.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case o.ID < 0:
		return fmt.Errorf("broker id %d: must not be negative", o.ID)
	case len(o.Endpoints) == 0:
		return fmt.Errorf("broker %d: no advertised listener", o.ID)
	case o.ReplicaLagTimeMax < o.ReplicaFetchWait:
		return fmt.Errorf("broker %d: replica.lag.time.max.ms %d is below replica.fetch.wait.max.ms %d: every follower would fall out of the ISR",
			o.ID, o.ReplicaLagTimeMax.Milliseconds(), o.ReplicaFetchWait.Milliseconds())
	}
	found := false
	for _, e := range o.Endpoints {
		found = found || e.Listener == o.InterBrokerListener
	}
	if !found {
		return fmt.Errorf("broker %d: no listener is named %s, the inter-broker listener: controllers could not reach it", o.ID, o.InterBrokerListener)
	}
	return nil
}

// behaviour is what changed between releases (spec/broker.md §0.3).
type behaviour struct {
	profile             Profile
	checkAtFullLag      bool // <= 0.10.1: the shrink check runs every lag, not every half
	brokerEpochs        bool // >= 2.2
	refusesHigherEpoch  bool // 2.2 - 2.4: a broker epoch above one's own is a server error
	stopEpochs          bool // >= 2.6: StopReplica carries a leader epoch
	stopRefusesEqual    bool // 2.6 - 3.3: and an equal one is fenced
	topicIDs            bool // >= 2.8
	partitionEpochGuard bool // >= 3.3
	joinersMustLive     bool // >= 3.3: only a broker of the metadata cache's live set joins
	failedMeter         bool // >= 0.11
	metersAttempts      bool // <= 2.3: shrinks and expands count even when refused
	checksEndpoints     bool // >= 2.1 (2.0.1): refuses an endpoint another broker advertises
	controllerFromZK    bool // <= 2.8: ControlledShutdown finds the controller in ZooKeeper
	announces           bool // >= 0.9: there are announcements of ISR changes
	swallowsErrors      bool // <= 1.0: a write that ZooKeeper did not answer is a refused one
	forgetsUnsent       bool // 2.7 and 2.8 in profile C: a LeaderAndIsr takes a proposal off the queue
	asksByTopicID       bool // >= 3.3 with IBP >= 2.8: AlterPartition of version 2, if all topics have ids
	knowsInvalidRequest bool // >= 3.2: INVALID_REQUEST to a proposal is final
	knowsIneligible     bool // >= 3.3: so are UNKNOWN_TOPIC_ID and NEW_LEADER_ELECTED, and INELIGIBLE_REPLICA takes it back

	messageLag        bool // 0.8: replica.lag.max.messages
	previousFetch     bool // >= 0.10.2: a follower that reaches the end of its previous fetch was caught up then
	keepsLeaderEnd    bool // >= 3.3: and that end never falls
	failuresTouch     bool // <= 2.3: a refused fetch wipes what is known of the follower
	joinsAtEpochStart bool // >= 2.1 (2.0.1): a follower joins only from the leader epoch's start on
	equalEndsStay     bool // >= 2.2: nobody falls out whose end is the leader's
	waitsForOutsiders bool // >= 0.10.2: the high watermark waits for caught-up followers outside the ISR
	outsidersMustLive bool // >= 3.6: for those that may join alone
	effectiveMinISR   bool // >= 3.7: no more replicas than there are; below it the high watermark stands
	everyFetchRaises  bool // <= 2.3: each fetch looks at the high watermark, not only one that moves the follower's end
	answersOwedHW     bool // 2.4 and 2.5: a follower that is owed a high watermark is answered at once
	silentCommits     bool // 2.7 - 3.0 in profile C: a confirmed ISR does not look at the high watermark
	epochRefetches    bool // >= 2.1: a new epoch of the same leader makes a follower start anew
	cutsToHW          bool // <= 0.10: a follower begins by cutting its log to the high watermark
	startsAtEnd       bool // 0.11 and 1.0: it asks for the epoch's end from its log's end on
	fetchTruncates    bool // IBP >= 2.7-IV1: divergence is found by fetching
	startsFetching    bool // and >= 2.8: nothing is asked for before
	answersTellEpochs bool // IBP >= 2.0: an epoch's end comes with the epoch
	tellsEpochs       bool // IBP >= 2.0: requests tell the leader epoch
	tellsBrokerEpoch  bool // IBP >= 3.5: fetches tell the follower's broker epoch
	forgetsOldEpochs  bool // 0.11: a leader knows nothing of epochs below its first
	addingCountsNot   bool // >= 2.5: replicas that are being added do not count as missing
}

func behaviourOf(o Options) behaviour {
	at := func(major, minor int) bool {
		return o.Release.AtLeast(kafka.ProtocolVersion{Major: major, Minor: minor})
	}
	profile := ProfileC
	if o.Version.Less(kafka.V2_7IV2) { // spec/broker.md §0.2
		if profile = ProfileA; at(2, 8) {
			profile = ProfileB
		}
	}
	return behaviour{
		profile:             profile,
		checkAtFullLag:      !at(0, 1002),
		brokerEpochs:        at(2, 2),
		refusesHigherEpoch:  at(2, 2) && !at(2, 5),
		stopEpochs:          at(2, 6),
		stopRefusesEqual:    at(2, 6) && !at(3, 4),
		topicIDs:            at(2, 8),
		partitionEpochGuard: at(3, 3),
		joinersMustLive:     at(3, 3),
		failedMeter:         at(0, 1100),
		metersAttempts:      !at(2, 4),
		checksEndpoints:     at(2, 1),
		controllerFromZK:    !at(3, 0),
		announces:           at(0, 9),
		swallowsErrors:      !at(1, 1),
		forgetsUnsent:       at(2, 7) && !at(3, 0),
		asksByTopicID:       at(3, 3) && o.Version.AtLeast(kafka.V2_8IV0),
		knowsInvalidRequest: at(3, 2),
		knowsIneligible:     at(3, 3),

		messageLag:        !at(0, 9),
		previousFetch:     at(0, 1002),
		keepsLeaderEnd:    at(3, 3),
		failuresTouch:     !at(2, 4),
		joinsAtEpochStart: at(2, 1),
		equalEndsStay:     at(2, 2),
		waitsForOutsiders: at(0, 1002),
		outsidersMustLive: at(3, 6),
		effectiveMinISR:   at(3, 7),
		everyFetchRaises:  !at(2, 4),
		answersOwedHW:     at(2, 4) && !at(2, 6),
		silentCommits:     at(2, 7) && !at(3, 1),
		epochRefetches:    at(2, 1),
		cutsToHW:          !at(0, 1100) || o.Version.Less(kafka.ProtocolVersion{Major: 0, Minor: 1100, IV: 2}),
		startsAtEnd:       !at(1, 1),
		fetchTruncates:    o.Version.AtLeast(kafka.ProtocolVersion{Major: 2, Minor: 7, IV: 1}),
		startsFetching:    at(2, 8) && o.Version.AtLeast(kafka.ProtocolVersion{Major: 2, Minor: 7, IV: 1}),
		answersTellEpochs: o.Version.AtLeast(kafka.ProtocolVersion{Major: 2}),
		tellsEpochs:       o.Version.AtLeast(kafka.ProtocolVersion{Major: 2, IV: 1}),
		tellsBrokerEpoch:  o.Version.AtLeast(kafka.ProtocolVersion{Major: 3, Minor: 5}),
		forgetsOldEpochs:  !at(1, 0),
		addingCountsNot:   at(2, 5),
	}
}

// shrinkPeriod is the period of Kafka's isr-expiration task (spec/broker.md §3.1).
func (b behaviour) shrinkPeriod(lag time.Duration) time.Duration {
	if b.checkAtFullLag {
		return lag
	}
	return lag / 2
}

// registrationVersion is the version of the registration JSON (spec/broker.md §1.2).
func registrationVersion(o Options) int {
	switch {
	case o.Version.AtLeast(kafka.V2_7IV0):
		return 5
	case o.Version.Less(kafka.V0_10_0IV1):
		return 2
	case o.Release.Less(kafka.V0_10_2IV0):
		return 3
	}
	return 4
}

// APIRange is a range of request versions that a broker serves.
type APIRange struct{ Key, Min, Max int16 }

// APIVersions is the ApiVersions table of a release: what an emulated broker
// itself serves, at the versions that release served it. Before 0.10 the
// request does not exist and the table is empty.
func APIVersions(o Options) []APIRange {
	o = o.withDefaults()
	pick := func(steps ...apiStep) int16 {
		best := int16(-1)
		for _, s := range steps {
			if o.Release.AtLeast(s.from) {
				best = s.max
			}
		}
		return best
	}
	since := func(major, minor int, max int16) apiStep {
		return apiStep{kafka.ProtocolVersion{Major: major, Minor: minor}, max}
	}
	rows := []struct {
		key int16
		max int16
	}{
		{3, pick(since(0, 9, 0), since(0, 1000, 1), since(0, 1001, 2), since(0, 1100, 4), since(1, 0, 5), since(2, 0, 6),
			since(2, 1, 7), since(2, 3, 8), since(2, 4, 9), since(2, 8, 11), since(3, 1, 12))},
		{4, pick(since(0, 9, 0), since(1, 0, 1), since(2, 2, 2), since(2, 4, 4), since(2, 8, 5), since(3, 2, 6), since(3, 4, 7))},
		{5, pick(since(0, 9, 0), since(2, 2, 1), since(2, 4, 2), since(2, 6, 3), since(3, 4, 4))},
		{6, pick(since(0, 9, 1), since(0, 1000, 2), since(0, 1002, 3), since(1, 0, 4), since(2, 2, 5), since(2, 4, 6),
			since(2, 8, 7), since(3, 4, 8))},
		{18, pick(since(0, 1000, 0), since(0, 1100, 1), since(2, 0, 2), since(2, 4, 3), since(3, 9, 4))},
		{60, pick(since(2, 8, 0), since(3, 7, 1))},
	}
	if o.Release.Less(kafka.ProtocolVersion{Major: 0, Minor: 1000}) {
		return nil
	}
	var table []APIRange
	for _, r := range rows {
		if r.max >= 0 {
			table = append(table, APIRange{Key: r.key, Max: r.max})
		}
	}
	return table
}

type apiStep struct {
	from kafka.ProtocolVersion
	max  int16
}
