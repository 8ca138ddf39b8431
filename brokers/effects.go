package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Event is what happens to a Broker: requests, answers to its effects, faults,
// the session's fate.
type Event interface {
	apply(b *Broker, now time.Time)
}

// Effect is what a Broker wants from the world. World.Perform carries it out
// and gives the Event that answers it.
type Effect interface {
	lane() lane
}

// lane says who carries an effect out; effects of one lane keep their order.
type lane uint8

const (
	atOnce       lane = iota // the process itself: never blocks
	toZooKeeper              // may take as long as ZooKeeper is away
	toController             // may take as long as the controller is away
	toDisk                   // may take as long as the disk is busy
	toLeader                 // a request to another broker; each has a way of its own
)

// run ties an effect and its answer to one life of the process: what arrives
// after a crash and a restart belongs to nobody.
type run int

type (
	// SetListening opens or closes the broker's port. It is carried out before
	// the registration that makes the port known.
	SetListening struct{ Open bool }
	// OpenSession begins a session after a restart.
	OpenSession struct{}
	// CloseSession ends the session in good order.
	CloseSession struct{}
	// AbandonSession leaves the session to its timeout, as a killed process does.
	AbandonSession struct{}
	// ExpireSession ends the session as if the server had expired it.
	ExpireSession struct{}
	// Exit ends the broker. Err nil is a stop in good order.
	Exit struct{ Err error }
	// Register makes one attempt at /brokers/ids/N; First also makes the parents
	// and checks the addresses.
	Register struct {
		First   bool
		run     run
		session int // of the broker's sessions: the answer counts only in this one
		with    *registrar
	}
	// WriteISRs sets state znodes (profiles A and B).
	WriteISRs struct {
		Rows []ISRWrite
		run  run
	}
	// ISRWrite is one conditional set; Leadership.ZKVersion is the version expected.
	ISRWrite struct {
		Partition  kafka.TopicPartition
		Leadership kafka.Leadership
		proposal   *proposal
	}
	// Announce creates /isr_change_notification nodes, one a batch.
	Announce struct {
		Batches [][]kafka.TopicPartition
		run     run
	}
	// NotifyLogDirFailure creates a /log_dir_event_notification node.
	NotifyLogDirFailure struct {
		Broker kafka.BrokerID
		run    run
	}
	// AskAlterPartition sends ISR changes to the controller (profile C).
	AskAlterPartition struct {
		Controller kafka.Broker
		Request    *AlterPartitionRequest
		run        run
	}
	// ReadTopicConfigs reads the nodes of topics below /config/topics.
	ReadTopicConfigs struct {
		Topics []string
		run    run
	}
	// WriteCheckpoint writes a log directory's files of offsets; a nil map leaves
	// its file alone.
	WriteCheckpoint struct {
		Dir                                    string
		HighWatermarks, Starts, RecoveryPoints map[kafka.TopicPartition]int64
		last                                   bool // the process ends
		run                                    run
	}
	// Asking is common to the requests that a follower sends to a leader.
	Asking struct {
		Leader  kafka.BrokerID
		To      kafka.Broker // as the metadata cache has it; without endpoints if it has not
		run     run
		fetcher *fetcher
		turn    int
	}
	// FetchFrom fetches from a leader.
	FetchFrom struct {
		Asking
		Request *FetchRequest
	}
	// AskEpochEnds asks a leader where epochs end.
	AskEpochEnds struct {
		Asking
		Queries []EpochQuery
	}
	// AskOffsets asks a leader for both ends of its logs.
	AskOffsets struct {
		Asking
		Queries []OffsetQuery
	}
	// InterruptFetch ends the wait of a FetchFrom at a leader in this process. It
	// does nothing about others, which end by themselves.
	InterruptFetch struct {
		Leader  kafka.BrokerID
		request *FetchRequest
	}
	// AskControlledShutdown tells the controller that we leave. With FromZooKeeper
	// the controller is found there, as brokers up to 2.8 do.
	AskControlledShutdown struct {
		Controller    kafka.Broker
		FromZooKeeper bool
		Broker        kafka.BrokerID // who leaves
		BrokerEpoch   int64
		run           run
	}
)

func (SetListening) lane() lane          { return atOnce }
func (OpenSession) lane() lane           { return atOnce }
func (CloseSession) lane() lane          { return atOnce }
func (AbandonSession) lane() lane        { return atOnce }
func (ExpireSession) lane() lane         { return atOnce }
func (Exit) lane() lane                  { return atOnce }
func (Register) lane() lane              { return toZooKeeper }
func (WriteISRs) lane() lane             { return toZooKeeper }
func (Announce) lane() lane              { return toZooKeeper }
func (NotifyLogDirFailure) lane() lane   { return toZooKeeper }
func (AskAlterPartition) lane() lane     { return toController }
func (AskControlledShutdown) lane() lane { return toController }
func (ReadTopicConfigs) lane() lane      { return toZooKeeper }
func (FetchFrom) lane() lane             { return toLeader }
func (AskEpochEnds) lane() lane          { return toLeader }
func (AskOffsets) lane() lane            { return toLeader }
func (InterruptFetch) lane() lane        { return toLeader }

// lane: the last checkpoint is written before the session is closed.
func (w WriteCheckpoint) lane() lane {
	if w.last {
		return atOnce
	}
	return toDisk
}

// leaderEffect is a request to a leader, whose address is filled in last.
type leaderEffect interface {
	Effect
	to(kafka.Broker) Effect
}

func (e FetchFrom) to(b kafka.Broker) Effect    { e.To = b; return e }
func (e AskEpochEnds) to(b kafka.Broker) Effect { e.To = b; return e }
func (e AskOffsets) to(b kafka.Broker) Effect   { e.To = b; return e }

// Answer is the event that answers it, for those who carry it out themselves. An
// error means that no answer came.
func (e FetchFrom) Answer(results []FetchResult, err error) Event {
	return fetched{Asking: e.Asking, results: results, err: err}
}

// Answer is as FetchFrom's.
func (e AskEpochEnds) Answer(answers []EpochAnswer, err error) Event {
	return epochEndsAnswered{Asking: e.Asking, answers: answers, err: err}
}

// Answer is as FetchFrom's.
func (e AskOffsets) Answer(answers []OffsetAnswer, err error) Event {
	return offsetsAnswered{Asking: e.Asking, queries: e.Queries, answers: answers, err: err}
}

type (
	// Start begins the process's life: the port, then the registration.
	Start struct{}
	// Control is a control request. Reply is called once, or never if the
	// process dies first, and must not block.
	Control struct {
		Request control.Request
		Reply   func(control.Response)
	}
	// SessionExpired says that the ZooKeeper session is over.
	SessionExpired struct{}
	// SessionEstablished says that a new session was opened after an expiry.
	SessionEstablished struct{}
	// Stop asks for a stop in good order: controlled shutdown first.
	Stop struct{}
	// FollowerChanged says that a follower in this process fetches differently
	// now, in some partitions or, with none, in all.
	FollowerChanged struct {
		Follower   kafka.BrokerID
		Partitions []kafka.TopicPartition
	}
)

// Answers to effects. Only World.Perform makes them.
type (
	registered struct {
		run     run
		session int
		epoch   int64
		err     error
	}
	isrsWritten struct {
		run  run
		rows []isrWritten
	}
	isrWritten struct {
		ISRWrite
		version int32 // of the znode now
		ok      bool  // written, or found there already
		err     error // the call failed: nobody knows
	}
	announced struct {
		run  run
		sent [][]kafka.TopicPartition
		err  error
	}
	alterPartitionAnswered struct {
		run     run
		request *AlterPartitionRequest
		answer  AlterPartitionAnswer
		err     error // no answer: the connection broke
	}
	controlledShutdownAnswered struct {
		run       run
		code      kafka.ErrorCode
		remaining []kafka.TopicPartition
		err       error
	}
	topicConfigsRead struct {
		run    run
		topics []string
		sets   []map[string]string // in the order of topics
		err    error
	}
	checkpointWritten struct {
		run run
		dir string
		err error
	}
	fetched struct {
		Asking
		results []FetchResult
		err     error
		held    bool // by a fault, once
	}
	epochEndsAnswered struct {
		Asking
		answers []EpochAnswer
		err     error
	}
	offsetsAnswered struct {
		Asking
		queries []OffsetQuery
		answers []OffsetAnswer
		err     error
	}
)
