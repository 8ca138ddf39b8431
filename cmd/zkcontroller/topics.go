package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func topicsCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "topics", Short: "Create, alter, delete, describe and list topics, by znodes or by requests",
		Args: cobra.NoArgs, RunE: nothingNamed,
	}
	group.AddCommand(topicsCreate(), topicsAlter(), topicsDelete(), topicsDescribe(), topicsList())
	return group
}

// topicAdmin changes topics, by znodes or by requests. Each answer is nil or
// says why not.
type topicAdmin interface {
	create(ctx context.Context, t newTopic) error
	addPartitions(ctx context.Context, topic string, count int, rows [][]kafka.BrokerID) error
	alterConfig(ctx context.Context, topic string, set map[string]string, drop []string) error
	remove(ctx context.Context, topic string) error
	describe(ctx context.Context, names []string, all bool) ([]topicView, error)
}

// newTopic is one topic to create; -1 leaves a number to the defaults.
type newTopic struct {
	name       string
	partitions int
	factor     int
	rows       [][]kafka.BrokerID // one per partition; nil is automatic
	config     map[string]string
}

var (
	errTopicExists  = errors.New("the topic exists already")
	errTopicMissing = errors.New("there is no such topic")
)

func topicsCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create --topic T", Short: "Create topics", Args: cobra.NoArgs}
	f := cmd.Flags()
	names := f.StringArray("topic", nil, "name; may be repeated")
	partitions := f.Int("partitions", -1, "number of partitions; -1 is num.partitions")
	factor := f.Int("replication-factor", -1, "replicas of each; -1 is default.replication.factor")
	assignment := f.String("replica-assignment", "", "brokers by hand: 1:2:3,2:3:1 has two partitions")
	settings := f.StringArray("config", nil, "KEY=VALUE; may be repeated")
	quiet := f.Bool("if-not-exists", false, "a topic that is there already is no error")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(*names) == 0 {
			return usageError("no --topic")
		}
		rows, err := parseRows(*assignment)
		if err != nil {
			return err
		}
		if rows != nil && (f.Changed("partitions") || f.Changed("replication-factor")) {
			return usageError("--replica-assignment says how many partitions and replicas there are; leave --partitions and --replication-factor out")
		}
		config, err := parsePairs(*settings)
		if err != nil {
			return err
		}
		for _, name := range *names {
			if why := kafka.ValidTopicName(name); why != "" {
				return usageError("--topic %q: %s", name, why)
			}
		}
		var plan []string
		for _, name := range *names {
			plan = append(plan, fmt.Sprintf("create topic %s partitions=%d replication-factor=%d assignment=%q config=%v", name, *partitions, *factor, *assignment, *settings))
		}
		if ok, err := m.approve(cmd, plan); !ok {
			return err
		}
		return withTopics(cmd, at, func(ctx context.Context, admin topicAdmin) error {
			return m.each(ctx, cmd, *names, "created", func(name string) error {
				err := admin.create(ctx, newTopic{name, *partitions, *factor, rows, config})
				if *quiet && errors.Is(err, errTopicExists) {
					return errUnchanged
				}
				return err
			})
		})
	}
	return cmd
}

func topicsAlter() *cobra.Command {
	cmd := &cobra.Command{Use: "alter --topic T", Short: "Add partitions; change a topic's configuration", Args: cobra.NoArgs}
	f := cmd.Flags()
	names := f.StringArray("topic", nil, "name; may be repeated")
	partitions := f.Int("partitions", 0, "the new number of partitions, more than now")
	assignment := f.String("replica-assignment", "", "brokers of all partitions by hand, 1:2,2:1")
	settings := f.StringArray("config", nil, "KEY=VALUE; may be repeated")
	drop := f.StringArray("delete-config", nil, "KEY; may be repeated")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := parsePairs(*settings)
		if err != nil {
			return err
		}
		rows, err := parseRows(*assignment)
		switch {
		case err != nil:
			return err
		case len(*names) == 0:
			return usageError("no --topic")
		case *partitions == 0 && len(set) == 0 && len(*drop) == 0:
			return usageError("nothing to alter: give --partitions, --config or --delete-config")
		case rows != nil && len(rows) != *partitions:
			return usageError("--replica-assignment has %d partitions, --partitions says %d", len(rows), *partitions)
		}
		var plan []string
		for _, name := range *names {
			plan = append(plan, fmt.Sprintf("alter topic %s partitions=%d config=%v delete-config=%v", name, *partitions, *settings, *drop))
		}
		if ok, err := m.approve(cmd, plan); !ok {
			return err
		}
		return withTopics(cmd, at, func(ctx context.Context, admin topicAdmin) error {
			return m.each(ctx, cmd, *names, "altered", func(name string) error {
				if len(set) > 0 || len(*drop) > 0 {
					if err := admin.alterConfig(ctx, name, set, *drop); err != nil {
						return err
					}
				}
				if *partitions == 0 {
					return nil
				}
				return admin.addPartitions(ctx, name, *partitions, rows)
			})
		})
	}
	return cmd
}

func topicsDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete --topic T", Short: "Mark topics for deletion", Args: cobra.NoArgs}
	names := cmd.Flags().StringArray("topic", nil, "name; may be repeated")
	quiet := cmd.Flags().Bool("if-exists", false, "a topic that is not there is no error")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(*names) == 0 {
			return usageError("no --topic")
		}
		var plan []string
		for _, name := range *names {
			plan = append(plan, "delete topic "+name+" and all its data")
		}
		if ok, err := m.approve(cmd, plan); !ok {
			return err
		}
		return withTopics(cmd, at, func(ctx context.Context, admin topicAdmin) error {
			return m.each(ctx, cmd, *names, "marked for deletion", func(name string) error {
				err := admin.remove(ctx, name)
				if *quiet && errors.Is(err, errTopicMissing) {
					return errUnchanged
				}
				return err
			})
		})
	}
	return cmd
}

func topicsDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe [--topic T]", Short: "Print topics with leaders, replicas and in-sync replicas", Args: cobra.NoArgs}
	f := cmd.Flags()
	names := f.StringArray("topic", nil, "name; may be repeated; none is all")
	under := f.Bool("under-replicated-partitions", false, "only partitions whose ISR lacks a replica")
	leaderless := f.Bool("unavailable-partitions", false, "only partitions without a leader")
	quiet := f.Bool("if-exists", false, "a topic that is not there is no error")
	format, at := formatFlag(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withTopics(cmd, at, func(ctx context.Context, admin topicAdmin) error {
			topics, err := admin.describe(ctx, *names, len(*names) == 0)
			if err != nil {
				return err
			}
			for _, name := range *names {
				if !*quiet && !slices.ContainsFunc(topics, func(t topicView) bool { return t.Name == name }) {
					return fmt.Errorf("topic %s: %w", name, errTopicMissing)
				}
			}
			if *under || *leaderless {
				for i := range topics {
					topics[i].Partitions = slices.DeleteFunc(topics[i].Partitions, func(p partitionView) bool {
						return !(*under && p.underReplicated() || *leaderless && p.Leader < 0)
					})
				}
				topics = slices.DeleteFunc(topics, func(t topicView) bool { return len(t.Partitions) == 0 })
			}
			return printData(cmd.OutOrStdout(), *format, emptyNotNull(topics), topicHead, topicRows(topics))
		})
	}
	return cmd
}

func topicsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Print the names of all topics", Args: cobra.NoArgs}
	format, at := formatFlag(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withTopics(cmd, at, func(ctx context.Context, admin topicAdmin) error {
			topics, err := admin.describe(ctx, nil, true)
			if err != nil {
				return err
			}
			names := []string{}
			var rows [][]string
			for _, t := range topics {
				names = append(names, t.Name)
				row := t.Name
				if t.Deleting {
					row += " - marked for deletion"
				}
				rows = append(rows, []string{row})
			}
			return printData(cmd.OutOrStdout(), *format, names, nil, rows)
		})
	}
	return cmd
}

var topicHead = []string{"TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ADDING", "REMOVING", "NOTE"}

func topicRows(topics []topicView) [][]string {
	var rows [][]string
	for _, t := range topics {
		if t.Error != "" || len(t.Partitions) == 0 {
			rows = append(rows, []string{t.Name, "-", "-", "-", "-", "-", "-", "-", cmp.Or(t.Error, "no partitions")})
		}
		for _, p := range t.Partitions {
			note := p.Error
			switch {
			case note != "":
			case t.Deleting:
				note = "marked for deletion"
			case p.Leader < 0:
				note = "no leader"
			case p.underReplicated():
				note = "under-replicated"
			}
			leader := "none"
			if p.Leader >= 0 {
				leader = strconv.Itoa(int(p.Leader))
			}
			rows = append(rows, []string{t.Name, strconv.Itoa(int(p.Partition)), leader, strconv.Itoa(int(p.Epoch)),
				joinIDs(p.Replicas), joinIDs(p.ISR), joinIDs(p.Adding), joinIDs(p.Removing), note})
		}
	}
	return rows
}

// errUnchanged is the answer of a mutation that found its wish fulfilled.
var errUnchanged = errors.New("unchanged")

// each carries out do for every item and prints what became of it. Only an
// error about ZooKeeper or the cluster as a whole stops it.
func (m *mutation) each(ctx context.Context, cmd *cobra.Command, items []string, done string, do func(string) error) error {
	var results []result
	for _, item := range items {
		err := do(item)
		switch {
		case err == nil:
			results = append(results, result{Item: item, Result: done})
		case errors.Is(err, errUnchanged):
			results = append(results, result{Item: item, Result: "unchanged"})
		case ctx.Err() != nil, exitCode(err) >= 3:
			if len(results) > 0 {
				_ = m.finish(cmd, results) // what was done before it broke off
			}
			return fmt.Errorf("%s: %w", item, err)
		default:
			results = append(results, result{Item: item, Result: "failed", Error: err.Error()})
		}
	}
	return m.finish(cmd, results)
}

// zkTopics acts by writing znodes (spec/controller.md §7.18).
type zkTopics struct {
	z       znodes
	version kafka.ProtocolVersion
	random  func(n int) int

	defaultPartitions  int
	defaultReplication int
}

func (a zkTopics) describe(ctx context.Context, names []string, all bool) ([]topicView, error) {
	return readTopics(ctx, a.z, names, all)
}

// one gives a topic that can be changed.
func (a zkTopics) one(ctx context.Context, name string) (topicView, error) {
	topics, err := readTopics(ctx, a.z, []string{name}, false)
	switch {
	case err != nil:
		return topicView{}, err
	case len(topics) == 0:
		return topicView{}, errTopicMissing
	case topics[0].Error != "":
		return topicView{}, errors.New(topics[0].Error)
	case topics[0].Deleting:
		return topicView{}, errors.New("the topic is marked for deletion")
	}
	return topics[0], nil
}

// create follows spec/admin-api.md §2: checks in that order, then the
// configuration, then the topic.
func (a zkTopics) create(ctx context.Context, t newTopic) error {
	brokers, _, err := readBrokers(ctx, a.z)
	if err != nil {
		return err
	}
	rows := t.rows
	if rows == nil {
		if rows, err = a.place(brokers, t); err != nil {
			return err
		}
	}
	nodes, err := a.z.Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: zkpaths.DeleteTopicPath(t.name)},
		{Op: zkpaths.Exists, Path: zkpaths.TopicPath(t.name)}, {Op: zkpaths.GetChildren, Path: zkpaths.BrokerTopics}})
	switch {
	case err != nil:
		return fmt.Errorf("look for topic %s: %w", t.name, err)
	case nodes[0].Code == zkpaths.OK:
		return fmt.Errorf("%w and is marked for deletion; wait until it is gone", errTopicExists)
	case nodes[1].Code == zkpaths.OK:
		return errTopicExists
	}
	metric := strings.NewReplacer(".", "_")
	for _, other := range nodes[2].Children {
		if metric.Replace(other) == metric.Replace(t.name) {
			return fmt.Errorf("the name collides with topic %s in the names of metrics, where '.' and '_' are the same", other)
		}
	}
	payload := zkpaths.Topic{Version: 3}
	if !a.version.AtLeast(kafka.V2_8IV0) {
		payload.Version = 2
	}
	if !a.version.AtLeast(kafka.V2_4IV0) {
		payload.Version = 1
	}
	for i, row := range rows {
		if err := checkRow(row, len(rows[0])); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
		payload.Partitions = append(payload.Partitions, zkpaths.PartitionAssignment{Partition: int32(i),
			ReplicaAssignment: kafka.ReplicaAssignment{Replicas: row}})
	}
	if err := checkConfig(t.config); err != nil {
		return err
	}
	if err := setOrCreate(ctx, a.z, zkpaths.TopicConfigPath(t.name), zkpaths.EncodeConfig(t.config)); err != nil {
		return err
	}
	existed, err := createOnly(ctx, a.z, zkpaths.TopicPath(t.name), zkpaths.EncodeTopic(payload))
	if existed {
		return errTopicExists
	}
	return err
}

func (a zkTopics) place(brokers []zkpaths.Registration, t newTopic) ([][]kafka.BrokerID, error) {
	partitions, factor := t.partitions, t.factor
	if partitions == -1 {
		partitions = a.defaultPartitions
	}
	if factor == -1 {
		factor = a.defaultReplication
	}
	if len(brokers) == 0 {
		return nil, errors.New("no broker is registered, so replicas have no place; start brokers, or give --replica-assignment")
	}
	racks := brokerRacks(brokers)
	m, err := reassign.AutoAssign(racks, partitions, factor, a.random(len(racks)), a.random(len(racks)), 0)
	if err != nil {
		return nil, err
	}
	return rowsOf(m), nil
}

func rowsOf(m map[int32][]kafka.BrokerID) [][]kafka.BrokerID {
	rows := make([][]kafka.BrokerID, 0, len(m))
	for _, p := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, m[p])
	}
	return rows
}

func brokerRacks(brokers []zkpaths.Registration) []reassign.BrokerRack {
	var racks []reassign.BrokerRack
	for _, b := range brokers {
		racks = append(racks, reassign.BrokerRack{ID: b.ID, Rack: b.Rack, HasRack: b.HasRack})
	}
	return racks
}

// checkRow refuses what would leave a partition that nobody can repair by requests.
func checkRow(row []kafka.BrokerID, factor int) error {
	if len(row) == 0 {
		return errors.New("no replicas")
	}
	if len(row) != factor {
		return fmt.Errorf("%d replicas, the first partition has %d", len(row), factor)
	}
	for i, id := range row {
		if id < 0 {
			return fmt.Errorf("broker %d: ids start at 0", id)
		}
		if slices.Contains(row[:i], id) {
			return fmt.Errorf("broker %d twice", id)
		}
	}
	return nil
}

// addPartitions follows spec/admin-api.md §4. The write is conditional, so that
// a move the controller begins meanwhile is not undone.
func (a zkTopics) addPartitions(ctx context.Context, name string, count int, rows [][]kafka.BrokerID) error {
	for range 5 {
		t, err := a.one(ctx, name)
		if err != nil {
			return err
		}
		have := len(t.Partitions)
		first, ok := t.find(0)
		switch {
		case !ok:
			return errors.New("partition 0 is missing from the topic's znode; repair it first")
		case slices.ContainsFunc(t.Partitions, func(p partitionView) bool { return p.assignment().Reassigning() }):
			return refused("a partition of the topic is being reassigned; wait for it, or cancel")
		case count <= have:
			return fmt.Errorf("the topic has %d partitions; %d would not be more", have, count)
		}
		fresh := rows
		if rows != nil {
			fresh = rows[have:]
		} else if fresh, err = a.more(ctx, first, count-have, have); err != nil {
			return err
		}
		payload := t.payload
		for i, row := range fresh {
			if err := checkRow(row, len(first.Replicas)); err != nil {
				return fmt.Errorf("partition %d: %w", have+i, err)
			}
			payload.Partitions = append(payload.Partitions, zkpaths.PartitionAssignment{Partition: int32(have + i),
				ReplicaAssignment: kafka.ReplicaAssignment{Replicas: row}})
		}
		path := zkpaths.TopicPath(name)
		out, err := a.z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Set, Path: path, Data: zkpaths.EncodeTopic(payload), Version: t.version}})
		if err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
		if out[0].Code != zkpaths.BadVersion {
			return out[0].Error(path)
		}
	}
	return errors.New("somebody else changes the topic all the time; try again")
}

func (a zkTopics) more(ctx context.Context, first partitionView, count, have int) ([][]kafka.BrokerID, error) {
	brokers, _, err := readBrokers(ctx, a.z)
	if err != nil {
		return nil, err
	}
	if len(brokers) == 0 {
		return nil, errors.New("no broker is registered; start brokers, or give --replica-assignment")
	}
	start := slices.IndexFunc(brokers, func(b zkpaths.Registration) bool { return len(first.Replicas) > 0 && b.ID >= first.Replicas[0] })
	start = max(start, 0)
	m, err := reassign.AutoAssign(brokerRacks(brokers), count, len(first.Replicas), start, start, int32(have))
	if err != nil {
		return nil, err
	}
	return rowsOf(m), nil
}

// alterConfig rewrites the topic's overrides and tells the brokers.
func (a zkTopics) alterConfig(ctx context.Context, name string, set map[string]string, drop []string) error {
	if _, err := a.one(ctx, name); err != nil {
		return err
	}
	return assembly.AlterTopicConfig(ctx, a.z, name, func(have map[string]string) (map[string]string, error) {
		config := map[string]string{}
		maps.Copy(config, have)
		maps.Copy(config, set)
		for _, key := range drop {
			if _, ok := config[key]; !ok {
				return nil, fmt.Errorf("the topic has no %s to delete", key)
			}
			delete(config, key)
		}
		return config, checkConfig(config)
	})
}

// checkConfig refuses what a broker would ignore or choke on.
func checkConfig(config map[string]string) error {
	if why := kafka.CheckTopicConfigs(config); why != "" {
		return errors.New(why)
	}
	return nil
}

// remove marks a topic. Marked already is as good (spec/admin-api.md §3).
func (a zkTopics) remove(ctx context.Context, name string) error {
	if why := kafka.ValidTopicName(name); why != "" {
		return errors.New(why)
	}
	_, ok, err := get(ctx, a.z, zkpaths.TopicPath(name))
	if err != nil {
		return err
	}
	if !ok {
		return errTopicMissing
	}
	_, err = createOnly(ctx, a.z, zkpaths.DeleteTopicPath(name), nil)
	return err
}

// parseRows reads 1:2:3,2:3:1; "" is nil.
func parseRows(s string) ([][]kafka.BrokerID, error) {
	if s == "" {
		return nil, nil
	}
	var rows [][]kafka.BrokerID
	for _, part := range strings.Split(s, ",") {
		var row []kafka.BrokerID
		for _, word := range strings.Split(part, ":") {
			id, ok := zkpaths.ParseBrokerID(strings.TrimSpace(word))
			if !ok {
				return nil, usageError("--replica-assignment: %q is no broker id; the form is 1:2:3,2:3:1", word)
			}
			row = append(row, id)
		}
		rows = append(rows, row)
		if err := checkRow(row, len(rows[0])); err != nil {
			return nil, usageError("--replica-assignment, partition %d: %w", len(rows)-1, err)
		}
	}
	return rows, nil
}

// parsePairs reads KEY=VALUE words.
func parsePairs(words []string) (map[string]string, error) {
	m := map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return nil, usageError("--config %q is not KEY=VALUE", w)
		}
		m[key] = value
	}
	return m, nil
}

func joinIDs(ids []kafka.BrokerID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(int(id))
	}
	return strings.Join(words, ",")
}

func emptyNotNull[T any](s []T) any {
	if s == nil {
		return json.RawMessage("[]")
	}
	return s
}

func randomIndex(n int) int { return rand.IntN(n) }
