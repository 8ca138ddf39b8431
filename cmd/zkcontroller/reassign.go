package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func reassignCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "reassign", Short: "Move replicas between brokers, with the JSON files of Kafka's tool",
		Args: cobra.NoArgs, RunE: nothingNamed,
	}
	group.AddCommand(reassignGenerate(), reassignExecute(), reassignVerify(), reassignList(), reassignCancel())
	return group
}

// plan is Kafka's reassignment file.
type plan struct {
	Version    int        `json:"version"`
	Partitions []planMove `json:"partitions"`
}

type planMove struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Replicas  []kafka.BrokerID `json:"replicas"`
}

// readPlan reads a reassignment file and checks every entry as a controller
// would. log_dirs is accepted when it only says "any": which disk a replica
// takes is for brokers to decide and cannot be asked for by a znode.
func readPlan(path string) ([]zkpaths.Reassignment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError("--reassignment-json-file: %w", err)
	}
	return parsePlan(path, data)
}

// parsePlan is readPlan of what was read; path is for messages.
func parsePlan(path string, data []byte) ([]zkpaths.Reassignment, error) {
	var file struct {
		Version    *int `json:"version"`
		Partitions []struct {
			Topic     *string          `json:"topic"`
			Partition *int32           `json:"partition"`
			Replicas  []kafka.BrokerID `json:"replicas"`
			LogDirs   []string         `json:"log_dirs"`
		} `json:"partitions"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, usageError(`%s: %w; the form is {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}`, path, err)
	}
	if file.Version != nil && *file.Version != 1 {
		return nil, usageError("%s: version %d is unknown, 1 is the only one", path, *file.Version)
	}
	if len(file.Partitions) == 0 {
		return nil, usageError("%s names no partitions", path)
	}
	seen := map[kafka.TopicPartition]bool{}
	var moves []zkpaths.Reassignment
	for i, e := range file.Partitions {
		if e.Topic == nil || e.Partition == nil {
			return nil, usageError("%s: entry %d lacks topic or partition", path, i)
		}
		m := zkpaths.Reassignment{Partition: kafka.TopicPartition{Topic: *e.Topic, Partition: *e.Partition}, Replicas: e.Replicas}
		switch err := checkRow(m.Replicas, len(m.Replicas)); {
		case err != nil:
			return nil, usageError("%s: %s: %w", path, m.Partition, err)
		case m.Partition.Partition < 0 || kafka.ValidTopicName(m.Partition.Topic) != "":
			return nil, usageError("%s: %s is no partition", path, m.Partition)
		case seen[m.Partition]:
			return nil, usageError("%s: %s is named twice", path, m.Partition)
		case slices.ContainsFunc(e.LogDirs, func(d string) bool { return d != "any" }):
			return nil, usageError("%s: %s: log_dirs other than \"any\" are not supported", path, m.Partition)
		}
		seen[m.Partition] = true
		moves = append(moves, m)
	}
	return moves, nil
}

func planOf(moves []zkpaths.Reassignment) plan {
	p := plan{Version: 1, Partitions: []planMove{}}
	for _, m := range moves {
		p.Partitions = append(p.Partitions, planMove{m.Partition.Topic, m.Partition.Partition, m.Replicas})
	}
	return p
}

func (p plan) line() string {
	b, err := json.Marshal(p)
	if err != nil {
		return err.Error() // strings and numbers always marshal
	}
	return string(b)
}

func reassignGenerate() *cobra.Command {
	cmd := &cobra.Command{Use: "generate", Short: "Print the current and a proposed assignment", Args: cobra.NoArgs}
	f := cmd.Flags()
	file := f.String("topics-to-move-json-file", "", `{"version":1,"topics":[{"topic":"t"}]}`)
	list := f.String("broker-list", "", "brokers to move to: 1,2,3")
	noRacks := f.Bool("disable-rack-aware", false, "place replicas as if brokers had no racks")
	format, at := formatFlag(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		names, err := readTopicsToMove(*file)
		if err != nil {
			return err
		}
		targets, err := parseBrokers(*list)
		if err != nil {
			return err
		}
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			topics, err := zkTopics{z: z}.describe(ctx, names, false)
			if err != nil {
				return err
			}
			brokers, _, err := readBrokers(ctx, z)
			if err != nil {
				return err
			}
			return printProposal(cmd, *format, names, topics, targets, brokerRacks(brokers), *noRacks)
		}, func(ctx context.Context, client *kgo.Client) error {
			topics, err := requestTopics{client: client}.describe(ctx, names, false)
			if err != nil {
				return err
			}
			brokers, err := metadataBrokers(ctx, client)
			if err != nil {
				return err
			}
			return printProposal(cmd, *format, names, topics, targets, brokers, *noRacks)
		})
	}
	return cmd
}

func printProposal(cmd *cobra.Command, format string, names []string, topics []topicView, targets []kafka.BrokerID, brokers []reassign.BrokerRack, noRacks bool) error {
	var racks []reassign.BrokerRack
	for _, id := range targets {
		i := slices.IndexFunc(brokers, func(b reassign.BrokerRack) bool { return b.ID == id })
		if i < 0 {
			return fmt.Errorf("--broker-list: broker %d is not registered", id)
		}
		b := brokers[i]
		if noRacks {
			b.Rack, b.HasRack = "", false
		}
		racks = append(racks, b)
	}
	var now, then []zkpaths.Reassignment
	for _, name := range names {
		i := slices.IndexFunc(topics, func(t topicView) bool { return t.Name == name })
		if i < 0 || topics[i].Error != "" || len(topics[i].Partitions) == 0 {
			return fmt.Errorf("topic %s: %w, or it cannot be read", name, errTopicMissing)
		}
		t := topics[i]
		rows, err := reassign.AutoAssign(racks, len(t.Partitions), len(t.Partitions[0].assignment().Target()), randomIndex(len(racks)), randomIndex(len(racks)), 0)
		if err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
		for n, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: name, Partition: p.Partition}
			now = append(now, zkpaths.Reassignment{Partition: tp, Replicas: p.Replicas})
			then = append(then, zkpaths.Reassignment{Partition: tp, Replicas: rows[int32(n)]})
		}
	}
	if format != "table" {
		return printData(cmd.OutOrStdout(), format, map[string]plan{"current": planOf(now), "proposed": planOf(then)}, nil, nil)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "Current partition replica assignment\n%s\n\nProposed partition reassignment configuration\n%s\n",
		planOf(now).line(), planOf(then).line())
	return err
}

func reassignExecute() *cobra.Command {
	cmd := &cobra.Command{Use: "execute --reassignment-json-file F", Short: "Start the moves of a file", Args: cobra.NoArgs}
	file := cmd.Flags().String("reassignment-json-file", "", "Kafka's reassignment file")
	additional := cmd.Flags().Bool("additional", false, "start although other moves are in progress; by znode only while there is none")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		moves, err := readPlan(*file)
		if err != nil {
			return err
		}
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			return executeByZnode(ctx, cmd, m, z, moves, *additional)
		}, func(ctx context.Context, client *kgo.Client) error {
			return executeByRequest(ctx, cmd, m, client, moves, *additional)
		})
	}
	return cmd
}

// currentOf gives the present replicas of every partition of the moves, for
// going back; a partition that is missing is an error.
func currentOf(topics []topicView, moves []zkpaths.Reassignment) ([]zkpaths.Reassignment, error) {
	var now []zkpaths.Reassignment
	var missing []string
	for _, m := range moves {
		p, ok := findPartition(topics, m.Partition)
		if !ok {
			missing = append(missing, m.Partition.String())
			continue
		}
		now = append(now, zkpaths.Reassignment{Partition: m.Partition, Replicas: p.assignment().Target()})
	}
	if missing != nil {
		return nil, fmt.Errorf("there is no such partition: %s", strings.Join(missing, " "))
	}
	return now, nil
}

func findPartition(topics []topicView, tp kafka.TopicPartition) (partitionView, bool) {
	i := slices.IndexFunc(topics, func(t topicView) bool { return t.Name == tp.Topic })
	if i < 0 {
		return partitionView{}, false
	}
	return topics[i].find(tp.Partition)
}

func topicsOf(moves []zkpaths.Reassignment) []string {
	var names []string
	for _, m := range moves {
		if !slices.Contains(names, m.Partition.Topic) {
			names = append(names, m.Partition.Topic)
		}
	}
	return names
}

func movePlan(now, moves []zkpaths.Reassignment) []string {
	lines := []string{"to go back, execute: " + planOf(now).line()}
	for i, m := range moves {
		lines = append(lines, fmt.Sprintf("move %s from %s to %s", m.Partition, joinIDs(now[i].Replicas), joinIDs(m.Replicas)))
	}
	return lines
}

func executeByZnode(ctx context.Context, cmd *cobra.Command, m *mutation, z znodes, moves []zkpaths.Reassignment, additional bool) error {
	now, err := checkByZnode(ctx, z, moves, additional)
	if err != nil {
		return err
	}
	if ok, err := m.approve(cmd, movePlan(now, moves)); !ok {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), movePlan(now, nil)[0])
	if err := startByZnode(ctx, z, moves); err != nil {
		return err
	}
	return m.finish(cmd, started(moves))
}

// planRoom is what one znode takes of a plan: the client sends a million bytes
// at most, below ZooKeeper's 1048575, of which path and headers need some.
const planRoom = 1_000_000 - 1024

// planTooLargeError says that a plan does not fit into one znode.
type planTooLargeError struct{ size, pieces int }

func (e *planTooLargeError) Error() string {
	return fmt.Sprintf("the plan has %d bytes as a znode, which is more than ZooKeeper takes in one request (jute.maxbuffer, 1048575 bytes): "+
		"split it into at least %d files and execute each when the one before is done, or go through brokers (--bootstrap-server)", e.size, e.pieces)
}

// fitsZnode tells how many pieces a plan needs that is too large.
func fitsZnode(moves []zkpaths.Reassignment) error {
	size := len(zkpaths.EncodeReassignments(moves))
	if size <= planRoom {
		return nil
	}
	frame := len(zkpaths.EncodeReassignments(nil))
	pieces, room := 1, planRoom-frame
	for i := range moves {
		entry := len(zkpaths.EncodeReassignments(moves[i:i+1])) - frame + len(",")
		if entry > room {
			pieces, room = pieces+1, planRoom-frame
		}
		room -= entry
	}
	return withCode(4, &planTooLargeError{size, pieces})
}

// checkByZnode gives the present replicas of every partition of a plan that can
// be started, or says why it cannot.
func checkByZnode(ctx context.Context, z znodes, moves []zkpaths.Reassignment, additional bool) (now []zkpaths.Reassignment, err error) {
	if err := fitsZnode(moves); err != nil {
		return nil, err
	}
	topics, err := readTopics(ctx, z, topicsOf(moves), false)
	if err != nil {
		return nil, err
	}
	if now, err = currentOf(topics, moves); err != nil {
		return nil, err
	}
	if err := refuseOngoing(ctx, z, topics, moves, additional); err != nil {
		return nil, err
	}
	brokers, _, err := readBrokers(ctx, z)
	if err != nil {
		return nil, err
	}
	for _, move := range moves {
		for _, id := range move.Replicas {
			if !slices.ContainsFunc(brokers, func(b zkpaths.Registration) bool { return b.ID == id }) {
				return nil, fmt.Errorf("%s: broker %d is not registered; start it, or change the file", move.Partition, id)
			}
		}
	}
	return now, nil
}

// refuseOngoing: the request node holds one plan, and a partition one move.
func refuseOngoing(ctx context.Context, z znodes, topics []topicView, moves []zkpaths.Reassignment, additional bool) error {
	node, exists, err := get(ctx, z, zkpaths.ReassignPartitions)
	if err != nil {
		return err
	}
	if exists {
		wanted, err := zkpaths.DecodeReassignments(node.Data, false)
		if err != nil {
			return refused("%s exists and cannot be read (%w); see what it is, and remove it if nobody wants it", zkpaths.ReassignPartitions, err)
		}
		return refused("%s exists: a reassignment of %s is in progress; verify it, and try again when it is done", zkpaths.ReassignPartitions, someOf(wanted))
	}
	moving := slices.DeleteFunc(slices.Clone(moves), func(m zkpaths.Reassignment) bool {
		p, ok := findPartition(topics, m.Partition)
		return !ok || !p.assignment().Reassigning()
	})
	if len(moving) > 0 && !additional {
		return refused("%s: another move is in progress; --additional replaces it", someOf(moving))
	}
	return nil
}

// someOf names partitions, the first ten of many.
func someOf(moves []zkpaths.Reassignment) string {
	const most = 10
	var names []string
	for _, m := range moves[:min(len(moves), most)] {
		names = append(names, m.Partition.String())
	}
	text := strings.Join(names, " ")
	if more := len(moves) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// startByZnode writes the request.
func startByZnode(ctx context.Context, z znodes, moves []zkpaths.Reassignment) error {
	existed, err := createOnly(ctx, z, zkpaths.ReassignPartitions, zkpaths.EncodeReassignments(moves))
	if err != nil {
		return err
	}
	if existed {
		return refused("%s was created by somebody else just now: a reassignment is in progress; verify it, and try again when it is done", zkpaths.ReassignPartitions)
	}
	return nil
}

func started(moves []zkpaths.Reassignment) []result {
	var out []result
	for _, m := range moves {
		out = append(out, result{Item: m.Partition.String(), Result: "started"})
	}
	return out
}

func executeByRequest(ctx context.Context, cmd *cobra.Command, m *mutation, client *kgo.Client, moves []zkpaths.Reassignment, additional bool) error {
	topics, err := requestTopics{client: client}.describe(ctx, topicsOf(moves), false)
	if err != nil {
		return err
	}
	now, err := currentOf(topics, moves)
	if err != nil {
		return err
	}
	if !additional {
		ongoing, err := ongoingByRequest(ctx, client)
		if err != nil {
			return err
		}
		if len(ongoing) > 0 {
			var moving []zkpaths.Reassignment
			for _, o := range ongoing {
				moving = append(moving, zkpaths.Reassignment{Partition: o.tp})
			}
			return refused("%s: moves are in progress; --additional starts more beside them", someOf(moving))
		}
	}
	if ok, err := m.approve(cmd, movePlan(now, moves)); !ok {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), movePlan(now, nil)[0])
	results, err := alterReassignments(ctx, client, moves, "started")
	if err != nil {
		return err
	}
	return m.finish(cmd, results)
}

// alterReassignments asks the controller; a move without replicas is a cancel.
func alterReassignments(ctx context.Context, client *kgo.Client, moves []zkpaths.Reassignment, done string) ([]result, error) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	for _, name := range topicsOf(moves) {
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = name
		for _, m := range moves {
			if m.Partition.Topic == name {
				p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
				p.Partition = m.Partition.Partition
				if m.Replicas != nil {
					p.Replicas = numbers(m.Replicas)
				}
				t.Partitions = append(t.Partitions, p)
			}
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := ask[*kmsg.AlterPartitionAssignmentsResponse](ctx, client, req)
	if err != nil {
		return nil, err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var results []result
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			r := result{Item: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}.String(), Result: done}
			if err := answered(p.ErrorCode, p.ErrorMessage); err != nil {
				r.Result, r.Error = "failed", err.Error()
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// ongoing is one move in progress.
type ongoing struct {
	Partition string           `json:"partition"`
	Replicas  []kafka.BrokerID `json:"replicas"`
	Adding    []kafka.BrokerID `json:"adding"`
	Removing  []kafka.BrokerID `json:"removing"`
	Target    []kafka.BrokerID `json:"target"`
	Source    string           `json:"source,omitempty"` // "znode" while it only stands in the request node

	tp kafka.TopicPartition
}

func ongoingOf(tp kafka.TopicPartition, a kafka.ReplicaAssignment) ongoing {
	return ongoing{Partition: tp.String(), Replicas: a.Replicas, Adding: a.Adding, Removing: a.Removing, Target: a.Target(), tp: tp}
}

func ongoingByRequest(ctx context.Context, client *kgo.Client) ([]ongoing, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.Topics = nil
	resp, err := ask[*kmsg.ListPartitionReassignmentsResponse](ctx, client, req)
	if err != nil {
		return nil, err
	}
	if err := answered(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var out []ongoing
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out = append(out, ongoingOf(kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition},
				kafka.ReplicaAssignment{Replicas: ids(p.Replicas), Adding: ids(p.AddingReplicas), Removing: ids(p.RemovingReplicas)}))
		}
	}
	return out, nil
}

// ongoingByZnode joins what the topic nodes say with the request node.
func ongoingByZnode(ctx context.Context, z znodes) ([]ongoing, error) {
	topics, err := readTopics(ctx, z, nil, true)
	if err != nil {
		return nil, err
	}
	wanted, err := wantedMoves(ctx, z)
	if err != nil {
		return nil, err
	}
	return joinOngoing(topics, wanted), nil
}

func joinOngoing(topics []topicView, wanted []zkpaths.Reassignment) []ongoing {
	var out []ongoing
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.assignment().Reassigning() {
				out = append(out, ongoingOf(kafka.TopicPartition{Topic: t.Name, Partition: p.Partition}, p.assignment()))
			}
		}
	}
	for _, m := range wanted {
		if !slices.ContainsFunc(out, func(o ongoing) bool { return o.tp == m.Partition }) {
			p, _ := findPartition(topics, m.Partition)
			o := ongoingOf(m.Partition, p.assignment())
			o.Target, o.Source = m.Replicas, "znode"
			out = append(out, o)
		}
	}
	return out
}

// wantedMoves reads /admin/reassign_partitions; a missing node wants nothing.
func wantedMoves(ctx context.Context, z znodes) ([]zkpaths.Reassignment, error) {
	n, ok, err := get(ctx, z, zkpaths.ReassignPartitions)
	if err != nil || !ok {
		return nil, err
	}
	return zkpaths.DecodeReassignments(n.Data, false)
}

func reassignList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Print moves in progress", Args: cobra.NoArgs}
	format, at := formatFlag(cmd), targetFlags(cmd)
	print := func(moves []ongoing) error {
		var rows [][]string
		for _, o := range moves {
			rows = append(rows, []string{o.Partition, joinIDs(o.Replicas), joinIDs(o.Adding), joinIDs(o.Removing), joinIDs(o.Target), o.Source})
		}
		return printData(cmd.OutOrStdout(), *format, emptyNotNull(moves), []string{"PARTITION", "REPLICAS", "ADDING", "REMOVING", "TARGET", "SOURCE"}, rows)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			moves, err := ongoingByZnode(ctx, z)
			if err != nil {
				return err
			}
			return print(moves)
		}, func(ctx context.Context, client *kgo.Client) error {
			moves, err := ongoingByRequest(ctx, client)
			if err != nil {
				return err
			}
			return print(moves)
		})
	}
	return cmd
}

func reassignVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify --reassignment-json-file F", Short: "Tell which moves of a file are done (exit code 5: some are not, 1: some failed)", Args: cobra.NoArgs,
		Long: `Compares the moves of a file with the cluster. When no move at all is in progress any more, replication throttles
of the file's topics and of all brokers are removed, as Kafka's tool does; standard error says which.`,
	}
	file := cmd.Flags().String("reassignment-json-file", "", "Kafka's reassignment file")
	keep := cmd.Flags().Bool("preserve-throttles", false, "leave replication throttles as they are")
	format, at := formatFlag(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		moves, err := readPlan(*file)
		if err != nil {
			return err
		}
		report := func(v verdict, err error) error {
			if err != nil && v.results == nil {
				return err
			}
			for _, line := range v.removed {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			var rows [][]string
			for _, r := range v.results {
				rows = append(rows, []string{r.Item, r.Result, r.Error})
			}
			if err := printData(cmd.OutOrStdout(), *format, v.results, nil, rows); err != nil {
				return err
			}
			if err == nil && v.code != 0 {
				return withCode(v.code, errSilent)
			}
			return err
		}
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			return report(verifyByZnode(ctx, z, moves, *keep))
		}, func(ctx context.Context, client *kgo.Client) error {
			topics, err := requestTopics{client: client}.describe(ctx, topicsOf(moves), false)
			if err != nil {
				return err
			}
			moving, err := ongoingByRequest(ctx, client)
			if err != nil {
				return err
			}
			v := verdict{}
			v.results, v.code = verify(topics, moving, moves)
			if len(moving) == 0 && !*keep {
				v.removed, err = dropByRequest(ctx, client, existing(topics))
			}
			return report(v, err)
		})
	}
	return cmd
}

// verdict is what verify found and did.
type verdict struct {
	results []result
	code    int
	removed []string // throttles
}

// verifyByZnode also removes throttles when no move is in progress anywhere. An
// error beside results is about the throttles.
func verifyByZnode(ctx context.Context, z znodes, moves []zkpaths.Reassignment, keep bool) (verdict, error) {
	topics, err := readTopics(ctx, z, topicsOf(moves), false)
	if err != nil {
		return verdict{}, err
	}
	wanted, err := wantedMoves(ctx, z)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{}
	moving := joinOngoing(topics, wanted)
	if v.results, v.code = verify(topics, moving, moves); keep || len(moving) > 0 {
		return v, nil
	}
	if moving, err = ongoingByZnode(ctx, z); err != nil || len(moving) > 0 {
		return v, err
	}
	v.removed, err = dropByZnode(ctx, z, existing(topics))
	return v, err
}

func existing(topics []topicView) []string {
	var names []string
	for _, t := range topics {
		if t.Error == "" {
			names = append(names, t.Name)
		}
	}
	return names
}

// verify compares a file with the cluster: complete, in progress, or failed.
func verify(topics []topicView, moving []ongoing, moves []zkpaths.Reassignment) (results []result, code int) {
	for _, m := range moves {
		r := result{Item: m.Partition.String()}
		p, ok := findPartition(topics, m.Partition)
		i := slices.IndexFunc(moving, func(o ongoing) bool { return o.tp == m.Partition })
		switch {
		case !ok:
			r.Result, r.Error, code = "failed", "there is no such partition", 1
		case i >= 0 && slices.Equal(moving[i].Target, m.Replicas):
			r.Result = "in progress"
			if code == 0 {
				code = 5
			}
		case i >= 0:
			r.Result, r.Error, code = "failed", "another move is in progress, to "+joinIDs(moving[i].Target), 1
		case slices.Equal(p.Replicas, m.Replicas):
			r.Result = "complete"
		default:
			r.Result, r.Error, code = "failed", "no move is in progress and the replicas are "+joinIDs(p.Replicas), 1
		}
		results = append(results, r)
	}
	return results, code
}

func reassignCancel() *cobra.Command {
	cmd := &cobra.Command{Use: "cancel [--reassignment-json-file F]", Short: "Take moves back; without a file all that are in progress", Args: cobra.NoArgs}
	file := cmd.Flags().String("reassignment-json-file", "", "only the partitions of this file")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var only []zkpaths.Reassignment
		if *file != "" {
			var err error
			if only, err = readPlan(*file); err != nil {
				return err
			}
		}
		chosen := func(moves []ongoing) ([]ongoing, error) {
			if only != nil {
				moves = slices.DeleteFunc(moves, func(o ongoing) bool {
					return !slices.ContainsFunc(only, func(m zkpaths.Reassignment) bool { return m.Partition == o.tp })
				})
			}
			if len(moves) == 0 {
				return nil, errors.New("no such move is in progress")
			}
			return moves, nil
		}
		return at.act(cmd, func(ctx context.Context, _ *config.Config, z znodes) error {
			return cancelByZnode(ctx, cmd, m, z, chosen)
		}, func(ctx context.Context, client *kgo.Client) error {
			all, err := ongoingByRequest(ctx, client)
			if err != nil {
				return err
			}
			moves, err := chosen(all)
			if err != nil {
				return err
			}
			if ok, err := m.approve(cmd, cancelPlan(moves)); !ok {
				return err
			}
			var asks []zkpaths.Reassignment
			for _, o := range moves {
				asks = append(asks, zkpaths.Reassignment{Partition: o.tp})
			}
			results, err := alterReassignments(ctx, client, asks, "canceled")
			if err != nil {
				return err
			}
			return m.finish(cmd, results)
		})
	}
	return cmd
}

func cancelPlan(moves []ongoing) []string {
	var lines []string
	for _, o := range moves {
		lines = append(lines, fmt.Sprintf("cancel %s: back to %s", o.Partition, joinIDs(kafka.Without(o.Replicas, o.Adding))))
	}
	return lines
}

// cancelByZnode asks for the original replicas, since a znode has no other word
// for a cancel. A node that is there is replaced with its other entries kept; a
// controller of Kafka notices that only when the next one takes over
// (spec/controller.md §2.4).
func cancelByZnode(ctx context.Context, cmd *cobra.Command, m *mutation, z znodes, chosen func([]ongoing) ([]ongoing, error)) error {
	all, err := ongoingByZnode(ctx, z)
	if err != nil {
		return err
	}
	moves, err := chosen(all)
	if err != nil {
		return err
	}
	if ok, err := m.approve(cmd, cancelPlan(moves)); !ok {
		return err
	}
	var back []zkpaths.Reassignment
	for _, o := range moves {
		back = append(back, zkpaths.Reassignment{Partition: o.tp, Replicas: kafka.Without(o.Replicas, o.Adding)})
	}
	node, ok, err := get(ctx, z, zkpaths.ReassignPartitions)
	if err != nil {
		return err
	}
	write := zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.ReassignPartitions}
	if ok {
		wanted, err := zkpaths.DecodeReassignments(node.Data, false)
		if err != nil {
			return err
		}
		for _, w := range wanted {
			if !slices.ContainsFunc(back, func(b zkpaths.Reassignment) bool { return b.Partition == w.Partition }) {
				back = append(back, w)
			}
		}
		write.Op, write.Version = zkpaths.Set, node.Stat.Version
	}
	write.Data = zkpaths.EncodeReassignments(back)
	out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{write})
	if err != nil {
		return fmt.Errorf("write %s: %w", zkpaths.ReassignPartitions, err)
	}
	if !out[0].OK() {
		return refused("%w: somebody changed it meanwhile; try again", out[0].Error(zkpaths.ReassignPartitions))
	}
	var results []result
	for _, o := range moves {
		results = append(results, result{Item: o.Partition, Result: "cancel asked for"})
	}
	return m.finish(cmd, results)
}

func readTopicsToMove(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError("--topics-to-move-json-file: %w", err)
	}
	var file struct {
		Topics []struct {
			Topic string `json:"topic"`
		} `json:"topics"`
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Topics) == 0 {
		return nil, usageError(`%s: want {"version":1,"topics":[{"topic":"t"}]} (%v)`, path, err)
	}
	var names []string
	for _, t := range file.Topics {
		if why := kafka.ValidTopicName(t.Topic); why != "" {
			return nil, usageError("%s: %q: %s", path, t.Topic, why)
		}
		if !slices.Contains(names, t.Topic) {
			names = append(names, t.Topic)
		}
	}
	return names, nil
}

func parseBrokers(list string) ([]kafka.BrokerID, error) {
	var out []kafka.BrokerID
	for _, word := range strings.Split(list, ",") {
		id, err := strconv.ParseInt(strings.TrimSpace(word), 10, 32)
		if err != nil || id < 0 || slices.Contains(out, kafka.BrokerID(id)) {
			return nil, usageError("--broker-list %q: want different ids such as 1,2,3", list)
		}
		out = append(out, kafka.BrokerID(id))
	}
	return out, nil
}

func metadataBrokers(ctx context.Context, client *kgo.Client) ([]reassign.BrokerRack, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := ask[*kmsg.MetadataResponse](ctx, client, req)
	if err != nil {
		return nil, err
	}
	var out []reassign.BrokerRack
	for _, b := range resp.Brokers {
		r := reassign.BrokerRack{ID: kafka.BrokerID(b.NodeID), HasRack: b.Rack != nil}
		if b.Rack != nil {
			r.Rack = *b.Rack
		}
		out = append(out, r)
	}
	return out, nil
}
