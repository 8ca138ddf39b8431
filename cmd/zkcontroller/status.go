package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// status is a cluster at one moment, as ZooKeeper has it.
type status struct {
	Controller      *statusController `json:"controller"` // null: nobody is
	Epoch           *int32            `json:"controller_epoch"`
	Brokers         []statusBroker    `json:"brokers"`
	Topics          int               `json:"topics"`
	Partitions      int               `json:"partitions"`
	Leaderless      []string          `json:"leaderless"`
	UnderReplicated []string          `json:"under_replicated"`
	NotPreferred    int               `json:"not_led_by_preferred"`
	Reassignments   []ongoing         `json:"reassignments"`
	Deletions       []string          `json:"deletions"`
	Elections       []string          `json:"elections"`
	Notifications   map[string]int    `json:"notifications"`
	Problems        []string          `json:"problems"`
}

type statusController struct {
	ID    kafka.BrokerID `json:"id"`
	Since time.Time      `json:"since"`
}

type statusBroker struct {
	ID        kafka.BrokerID `json:"id"`
	Epoch     int64          `json:"epoch"`
	Rack      string         `json:"rack,omitempty"`
	Endpoints []string       `json:"endpoints"`
	Leads     int            `json:"leads"`
	Replicas  int            `json:"replicas"`
}

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show brokers, controller and what is pending or unwell (exit code 1: something is)", Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	watch := f.Bool("watch", false, "print again whenever something changed")
	interval := f.Duration("interval", 2*time.Second, "how often --watch looks")
	health := f.Bool("health", false, "only tell by the exit code whether there is a controller and, with --broker, that broker")
	broker := f.Int32("broker", -1, "with --health: this broker must be registered")
	format := formatFlag(cmd)
	at := &target{}
	zookeeperFlag(f)
	f.DurationVar(&at.timeout, "timeout", 30*time.Second, "give up after this")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *watch {
			return watchStatus(cmd, *format, *interval)
		}
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			if *health {
				return checkHealth(ctx, z, kafka.BrokerID(*broker))
			}
			s, err := readStatus(ctx, z)
			if err != nil {
				return err
			}
			if err := s.print(cmd.OutOrStdout(), *format); err != nil {
				return err
			}
			if s.unwell() {
				return withCode(1, errSilent)
			}
			return nil
		}, nil)
	}
	return cmd
}

// checkHealth is the health check of containers, whose image has no shell.
func checkHealth(ctx context.Context, z znodes, broker kafka.BrokerID) error {
	if _, ok, err := get(ctx, z, zkpaths.Controller); err != nil || !ok {
		return orError(err, "there is no controller")
	}
	if broker < 0 {
		return nil
	}
	if _, ok, err := get(ctx, z, zkpaths.BrokerPath(broker)); err != nil || !ok {
		return orError(err, fmt.Sprintf("broker %d is not registered", broker))
	}
	return nil
}

func orError(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

// watchStatus prints at every change until a signal comes, which is its good
// end. While ZooKeeper is away it says so and goes on.
func watchStatus(cmd *cobra.Command, format string, interval time.Duration) error {
	c, log, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	if err := needZooKeeper(c); err != nil {
		return err
	}
	if interval <= 0 {
		return usageError("--interval %v: give more than nothing", interval)
	}
	ctx := cmd.Context()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var z znodes
	closeZK := func() {}
	defer func() { closeZK() }()
	last := ""
	for {
		if z == nil {
			if z, closeZK, err = dialZooKeeper(ctx, c, log); err != nil {
				z, closeZK = nil, func() {}
			}
		}
		if z != nil {
			last, err = printChange(ctx, cmd.OutOrStdout(), z, format, last)
			if err != nil && exitCode(err) == 3 { // the session is over: a new one
				closeZK()
				z, closeZK = nil, func() {}
			}
		}
		if err != nil && ctx.Err() == nil {
			if exitCode(err) == 2 {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "zkcontroller:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printChange(ctx context.Context, w io.Writer, z znodes, format, last string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s, err := readStatus(ctx, z)
	if err != nil {
		return last, err
	}
	var b strings.Builder
	if err := s.print(&b, format); err != nil {
		return last, err
	}
	if b.String() == last {
		return last, nil
	}
	if format == "table" {
		_, err = fmt.Fprintf(w, "%s\n%s\n", time.Now().Format(time.DateTime), b.String())
	} else {
		_, err = io.WriteString(w, b.String())
	}
	return b.String(), err
}

// readStatus looks at everything once. What cannot be read is among Problems.
func readStatus(ctx context.Context, z znodes) (*status, error) {
	s := &status{Brokers: []statusBroker{}, Leaderless: []string{}, UnderReplicated: []string{}, Deletions: []string{},
		Elections: []string{}, Notifications: map[string]int{}, Problems: []string{}, Reassignments: []ongoing{}}
	if err := s.readController(ctx, z); err != nil {
		return nil, err
	}
	brokers, problems, err := readBrokers(ctx, z)
	if err != nil {
		return nil, err
	}
	s.Problems = append(s.Problems, problems...)
	for _, b := range brokers {
		v := statusBroker{ID: b.ID, Epoch: b.Epoch, Rack: b.Rack, Endpoints: []string{}}
		for _, e := range b.Endpoints {
			v.Endpoints = append(v.Endpoints, e.Listener+"://"+net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
		}
		s.Brokers = append(s.Brokers, v)
	}
	topics, err := readTopics(ctx, z, nil, true)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		s.add(t)
	}
	return s, s.readPending(ctx, z, topics)
}

func (s *status) readController(ctx context.Context, z znodes) error {
	n, ok, err := get(ctx, z, zkpaths.Controller)
	if err != nil {
		return err
	}
	if ok {
		if c, err := zkpaths.DecodeController(n.Data); err != nil {
			s.Problems = append(s.Problems, err.Error())
		} else {
			s.Controller = &statusController{ID: c.Broker, Since: time.UnixMilli(n.Stat.Mtime).UTC()}
		}
	}
	n, ok, err = get(ctx, z, zkpaths.ControllerEpoch)
	if err != nil {
		return err
	}
	if ok {
		if epoch, err := zkpaths.DecodeEpoch(n.Data); err != nil {
			s.Problems = append(s.Problems, err.Error())
		} else {
			s.Epoch = &epoch
		}
	}
	return nil
}

// add counts one topic.
func (s *status) add(t topicView) {
	s.Topics++
	if t.Error != "" {
		s.Problems = append(s.Problems, t.Error)
	}
	broker := func(id kafka.BrokerID) *statusBroker {
		if i := slices.IndexFunc(s.Brokers, func(b statusBroker) bool { return b.ID == id }); i >= 0 {
			return &s.Brokers[i]
		}
		return &statusBroker{} // not registered: counted nowhere
	}
	for _, p := range t.Partitions {
		s.Partitions++
		name := kafka.TopicPartition{Topic: t.Name, Partition: p.Partition}.String()
		for _, id := range p.Replicas {
			broker(id).Replicas++
		}
		broker(p.Leader).Leads++
		switch {
		case p.Error != "":
			s.Problems = append(s.Problems, p.Error)
		case t.Deleting:
		case p.Leader < 0:
			s.Leaderless = append(s.Leaderless, name)
		default:
			if p.underReplicated() {
				s.UnderReplicated = append(s.UnderReplicated, name)
			}
			if len(p.Replicas) > 0 && p.Leader != p.Replicas[0] {
				s.NotPreferred++
			}
		}
	}
}

func (s *status) readPending(ctx context.Context, z znodes, topics []topicView) error {
	wanted, err := wantedMoves(ctx, z)
	if err := s.problem(err); err != nil {
		return err
	}
	s.Reassignments = append(s.Reassignments, joinOngoing(topics, wanted)...)
	marks, err := children(ctx, z, zkpaths.DeleteTopics)
	if err != nil {
		return err
	}
	s.Deletions = append(s.Deletions, marks...)
	n, ok, err := get(ctx, z, zkpaths.PreferredElection)
	if err != nil {
		return err
	}
	if ok {
		tps, err := zkpaths.DecodePreferredElection(n.Data)
		if err := s.problem(err); err != nil {
			return err
		}
		for _, tp := range tps {
			s.Elections = append(s.Elections, tp.String())
		}
	}
	for _, path := range []string{zkpaths.ISRNotifications, zkpaths.LogDirNotifications} {
		names, err := children(ctx, z, path)
		if err != nil {
			return err
		}
		s.Notifications[strings.TrimPrefix(path, "/")] = len(names)
	}
	return nil
}

// problem keeps an unreadable payload as a finding and returns any other error.
func (s *status) problem(err error) error {
	if p, ok := errors.AsType[*zkpaths.PayloadError](err); ok {
		s.Problems = append(s.Problems, p.Error())
		return nil
	}
	return err
}

// unwell tells whether an operator should look. What merely is under way is not.
func (s *status) unwell() bool {
	return s.Controller == nil || len(s.Leaderless) > 0 || len(s.UnderReplicated) > 0 || len(s.Problems) > 0
}

func (s *status) print(w io.Writer, format string) error {
	if format != "table" {
		return printData(w, format, s, nil, nil)
	}
	controller, epoch := "none", "none"
	if s.Controller != nil {
		controller = fmt.Sprintf("%d since %s", s.Controller.ID, s.Controller.Since.Format(time.RFC3339))
	}
	if s.Epoch != nil {
		epoch = strconv.Itoa(int(*s.Epoch))
	}
	rows := [][]string{{"controller", controller}, {"controller epoch", epoch},
		{"topics", strconv.Itoa(s.Topics)}, {"partitions", strconv.Itoa(s.Partitions)},
		{"not led by preferred", strconv.Itoa(s.NotPreferred)},
		{"leaderless", some(s.Leaderless)}, {"under-replicated", some(s.UnderReplicated)},
		{"deletions", some(s.Deletions)}, {"elections", some(s.Elections)},
		{"notifications", fmt.Sprintf("%d isr, %d log-dir", s.Notifications["isr_change_notification"], s.Notifications["log_dir_event_notification"])}}
	var moves []string
	for _, o := range s.Reassignments {
		moves = append(moves, o.Partition+" to "+joinIDs(o.Target))
	}
	rows = append(rows, []string{"reassignments", some(moves)})
	if err := printTable(w, nil, rows); err != nil {
		return err
	}
	var brokers [][]string
	for _, b := range s.Brokers {
		brokers = append(brokers, []string{strconv.Itoa(int(b.ID)), strconv.FormatInt(b.Epoch, 10), b.Rack,
			strconv.Itoa(b.Leads), strconv.Itoa(b.Replicas), strings.Join(b.Endpoints, ",")})
	}
	fmt.Fprintln(w)
	if err := printTable(w, []string{"BROKER", "EPOCH", "RACK", "LEADS", "REPLICAS", "ENDPOINTS"}, brokers); err != nil {
		return err
	}
	for _, p := range s.Problems {
		if _, err := fmt.Fprintln(w, "problem:", p); err != nil {
			return err
		}
	}
	return nil
}

// some shows a count and the first few names.
func some(names []string) string {
	const shown = 8
	if len(names) == 0 {
		return "0"
	}
	text := strings.Join(names[:min(shown, len(names))], " ")
	if len(names) > shown {
		text += " ..."
	}
	return fmt.Sprintf("%d: %s", len(names), text)
}
