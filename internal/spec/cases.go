package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Case is one field case.
type Case struct {
	ID, Title, Kind, Basis string
	Given                  Given
	When                   []Step
	Then                   Expect

	file string
}

// Given is what is there before the first step.
type Given struct {
	Znodes  map[string]*string
	Brokers []struct {
		ID    int32
		Epoch int64
	}
	Stat   map[string]NodeStat
	Config CaseConfig
}

// NodeStat is the part of a Stat that cases name. Owner is a hexadecimal session id.
type NodeStat struct {
	Version *int32  `json:"version"`
	Czxid   *int64  `json:"czxid"`
	Owner   *string `json:"ephemeral_owner"`
}

// CaseConfig is given.config; nil and "" are the defaults of the format.
type CaseConfig struct {
	ISRVia         string `json:"isr_via"`
	TopicIDs       bool   `json:"topic_ids"`
	LeaderRecovery bool   `json:"leader_recovery"`
	DeleteTopics   *bool  `json:"delete_topic_enable"`
	Unclean        bool   `json:"unclean"`
	AutoRebalance  bool   `json:"auto_rebalance"`
	Propagation    *struct {
		Check    int64 `json:"check_ms"`
		Linger   int64 `json:"linger_ms"`
		MaxDelay int64 `json:"max_delay_ms"`
	} `json:"isr_propagation"`
	SessionTimeout int64 `json:"session_timeout_ms"`
}

// Step is one event of when: the union of all fields.
type Step struct {
	Do   string
	Hold bool

	Broker, From, To                                       *int32
	Path                                                   string
	Data                                                   json.RawMessage
	ExpectVersion                                          *int32 `json:"expect_version"`
	Version                                                *int32
	RC                                                     string `json:"rc"`
	Epoch                                                  int64
	Paused                                                 bool
	Handle                                                 string
	API                                                    string
	BrokerEpoch                                            *int64 `json:"broker_epoch"`
	Partition                                              string
	Partitions                                             json.RawMessage
	LeaderEpoch                                            int32             `json:"leader_epoch"`
	PartitionEpoch                                         int32             `json:"partition_epoch"`
	ISR                                                    []int32           `json:"isr"`
	Recovery                                               int8              `json:"leader_recovery_state"`
	ControllerID                                           int32             `json:"controller_id"`
	ControllerEpoch                                        int32             `json:"controller_epoch"`
	Leader                                                 *int32            `json:"leader"`
	ZKVersion                                              int32             `json:"zk_version"`
	Replicas                                               json.RawMessage   `json:"replicas"`
	IsNew                                                  bool              `json:"is_new"`
	Delete                                                 bool              `json:"delete"`
	Error                                                  string            `json:"error"`
	What                                                   string            `json:"what"`
	Topic                                                  string            `json:"topic"`
	Between                                                []string          `json:"between"`
	Then                                                   *Step             `json:"then"`
	Times                                                  int               `json:"times"`
	Event                                                  json.RawMessage   `json:"event"`
	BrokersAnswer                                          bool              `json:"brokers_answer"`
	Cmd                                                    string            `json:"cmd"`
	Plan                                                   string            `json:"plan"`
	Assignment                                             map[int32][]int32 `json:"assignment"`
	GenerateAssignment                                     *generated        `json:"generate_assignment"`
	GeneratePlan                                           *generated        `json:"generate_plan"`
	Session, Op, Tag, Process, New, Old, Host, Name, State string
	Watch                                                  bool
	Ops                                                    []Step
	LoseAnswer                                             bool `json:"lose_answer"`
	Endpoints                                              []string
	MetaProperties                                         map[string]string `json:"meta_properties"`
	Config                                                 map[string]string
	Deny                                                   json.RawMessage
	StartMS                                                int64 `json:"start_ms"`
	AtMS                                                   int64 `json:"at_ms"`
	EveryMS                                                int64 `json:"every_ms"`
	FromMS                                                 int64 `json:"from_ms"`
	UntilMS                                                int64 `json:"until_ms"`
	Count                                                  int
	Connect                                                string
	Cancel                                                 []string

	Expect // of an expect step
}

type generated struct {
	Topics         int     `json:"topics"`
	TopicName      string  `json:"topic_name"`
	PartitionsEach int32   `json:"partitions_each"`
	Partitions     int32   `json:"partitions"`
	Replicas       []int32 `json:"replicas"`
}

// Expect is what has to be true: then, or the fields of an expect step.
type Expect struct {
	Znodes        map[string]*string  `json:"znodes"`
	Absent        []string            `json:"absent"`
	Stat          map[string]NodeStat `json:"stat"`
	States        map[string]any      `json:"states"`
	Sent          []map[string]any    `json:"sent"`
	NotSent       []map[string]any    `json:"not_sent"`
	SentCounts    []sentCount         `json:"sent_counts"`
	LastSent      []map[string]any    `json:"last_sent"`
	Order         []any               `json:"order"`
	Replies       []any               `json:"replies"`
	Errors        []expectedError     `json:"errors"`
	Result        any                 `json:"result"`
	Counters      map[string]any      `json:"counters"`
	Watches       []watched           `json:"watches"`
	Unordered     bool                `json:"watches_unordered"`
	NotFired      []watched           `json:"not_fired"`
	Notifications []announced         `json:"notifications"`
	ChildCount    map[string]int      `json:"child_count"`
	RequestCounts []map[string]any    `json:"request_counts"`
	AllPartitions map[string]any      `json:"all_partitions"`
	WithinMS      int64               `json:"within_ms"`
	MustNot       []string            `json:"must_not"`
}

type sentCount struct {
	Match map[string]any
	Count int
}

type expectedError struct{ About, Kind, Says, Severity string }

type watched struct{ Session, Type, Path string }

type announced struct {
	AtMS int64 `json:"at_ms"`
	Data string
}

// Run plays the case files it is given, or those in the directories it is
// given, and prints one line for each to out, the last line with the totals.
// An error means that nothing could be judged: no such path, no case in it, or
// a file that is no case; it names the file.
func Run(paths []string, out io.Writer) (passed, failed, skipped int, err error) {
	return RunWith(nil, paths, out)
}

// RunWith is Run with operators' commands, by the name that cases call them;
// create-topic and add-partitions are requests to the controller if not given,
// any other is skipped.
func RunWith(tools map[string]Tool, paths []string, out io.Writer) (passed, failed, skipped int, err error) {
	files, err := caseFiles(paths)
	if err != nil {
		return 0, 0, 0, err
	}
	cases := make([]*Case, len(files))
	for i, f := range files {
		if cases[i], err = readCase(f); err != nil {
			return 0, 0, 0, err
		}
	}
	for _, c := range cases {
		r := play(c, tools)
		switch {
		case len(r.fails) > 0:
			failed++
			fmt.Fprintf(out, "FAIL %s %s: %s\n", c.ID, c.Title, strings.Join(append(r.fails, r.skips...), "; "))
		case len(r.skips) > 0:
			skipped++
			fmt.Fprintf(out, "skip %s %s: %s; the rest was checked\n", c.ID, c.Title, strings.Join(r.skips, "; "))
		default:
			passed++
			fmt.Fprintf(out, "pass %s %s\n", c.ID, c.Title)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return passed, failed, skipped, nil
}

// caseFiles lists the files, those of a directory sorted by name.
func caseFiles(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("reading cases: %w", err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		in, err := filepath.Glob(filepath.Join(p, "R-*.json"))
		if err != nil {
			return nil, fmt.Errorf("reading cases in %s: %w", p, err)
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("reading cases: no R-*.json in %s", p)
		}
		slices.Sort(in)
		files = append(files, in...)
	}
	if len(files) == 0 {
		return nil, errors.New("reading cases: no file or directory was named")
	}
	return files, nil
}

// topFields and the like are what a case file may have; anything else is a
// mistake in it that would otherwise go unnoticed.
var topFields = []string{"id", "title", "kind", "source", "basis", "checked", "given", "when", "then", "note"}

func readCase(file string) (*Case, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading case: %w", err)
	}
	bad := func(err error) error {
		var syntax *json.SyntaxError
		var typ *json.UnmarshalTypeError
		offset := int64(-1)
		if errors.As(err, &syntax) {
			offset = syntax.Offset
		} else if errors.As(err, &typ) {
			offset = typ.Offset
		}
		if offset >= 0 && offset <= int64(len(data)) {
			return fmt.Errorf("%s:%d: not a case file: %w", file, 1+bytes.Count(data[:offset], []byte("\n")), err)
		}
		return fmt.Errorf("%s: not a case file: %w", file, err)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, bad(err)
	}
	for name := range top {
		if !slices.Contains(topFields, name) {
			return nil, bad(fmt.Errorf("unknown field %q", name))
		}
	}
	c := &Case{file: file}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, bad(err)
	}
	switch {
	case c.ID == "":
		return nil, bad(errors.New(`field "id" is missing`))
	case len(c.When) == 0:
		return nil, bad(errors.New(`field "when" is missing or empty: nothing happens in it`))
	}
	for i, s := range c.When {
		if stepOf(s.Do) == nil {
			return nil, bad(fmt.Errorf("when[%d]: unknown step %q", i, s.Do))
		}
	}
	return c, nil
}

// parseSession reads a session id as cases write it.
func parseSession(s string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("session id %q is not hexadecimal", s)
	}
	return id, nil
}
