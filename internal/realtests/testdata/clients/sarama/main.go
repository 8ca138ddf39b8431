// Command sarama is what a program does with brokers through IBM/sarama. See
// ../README.md. Usage: sarama BOOTSTRAP
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	topic      = "sarama"
	group      = "sarama-group"
	partitions = 3
	each       = 200 // records of each form
	keys       = 20
	patience   = time.Minute
)

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	p := &program{brokers: strings.Split(os.Args[1], ",")}
	var err error
	if p.admin, err = sarama.NewClusterAdmin(p.brokers, config()); err != nil {
		fail("connect", err)
	}
	defer p.admin.Close()
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"create", p.create},
		{"acks=0", func() error { return p.produce("acks=0", sarama.NoResponse, sarama.CompressionNone, false) }},
		{"acks=1", func() error { return p.produce("acks=1", sarama.WaitForLocal, sarama.CompressionLZ4, false) }},
		{"acks=all", func() error { return p.produce("acks=all", sarama.WaitForAll, sarama.CompressionZSTD, false) }},
		{"idempotent", func() error { return p.produce("idempotent", sarama.WaitForAll, sarama.CompressionSnappy, true) }},
		{"consume", p.consume}, {"group", p.group}, {"committed", p.committed}, {"configs", p.configs}, {"partitions", p.partitions},
		{"groups", p.groups}, {"delete", p.delete},
	} {
		began := time.Now()
		if err := step.run(); err != nil {
			fail(step.name, err)
		}
		fmt.Printf("ok %s %.1f s\n", step.name, time.Since(began).Seconds())
	}
}

func fail(step string, err error) {
	fmt.Fprintf(os.Stderr, "FAIL %s: %v\n", step, err)
	os.Exit(1)
}

type program struct {
	brokers []string
	admin   sarama.ClusterAdmin
}

const total = 4 * each

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_9_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Producer.Return.Successes = true
	return c
}

// await calls f until it is done; err tells what is still missing.
func await(what string, f func() (done bool, err error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		done, err := f()
		if done {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out waiting until %s: %w", what, err)
		}
	}
}

func (p *program) create() error {
	min := "2"
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3, ConfigEntries: map[string]*string{"min.insync.replicas": &min}}
	if err := await("three brokers are there", func() (bool, error) { // one may be registered and not known to all yet
		err := p.admin.CreateTopic(topic, detail, false)
		return !errors.Is(err, sarama.ErrInvalidReplicationFactor), err
	}); err != nil {
		return err
	}
	if err := p.admin.CreateTopic(topic, detail, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	return await("all partitions are led and in sync", func() (bool, error) {
		all, err := p.admin.DescribeTopics([]string{topic})
		if err != nil {
			return false, err
		}
		for _, row := range all[0].Partitions {
			if row.Leader < 1 || len(row.Isr) != 3 {
				return false, fmt.Errorf("%+v", row)
			}
		}
		return len(all[0].Partitions) == partitions, nil
	})
}

func (p *program) produce(form string, acks sarama.RequiredAcks, codec sarama.CompressionCodec, idempotent bool) error {
	c := config()
	c.Producer.RequiredAcks, c.Producer.Compression, c.Producer.Idempotent = acks, codec, idempotent
	if idempotent {
		c.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(p.brokers, c)
	if err != nil {
		return err
	}
	defer producer.Close()
	for i := 0; i < each; i += keys {
		var batch []*sarama.ProducerMessage
		for n := i; n < i+keys; n++ {
			batch = append(batch, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(strconv.Itoa(n % keys)), Value: sarama.StringEncoder(fmt.Sprintf("%s/%d", form, n)),
				Headers: []sarama.RecordHeader{{Key: []byte("form"), Value: []byte(form)}}})
		}
		if err := producer.SendMessages(batch); err != nil {
			return err
		}
	}
	return nil
}

// consume reads each partition from its beginning: offsets without a gap, the
// values of a key in order.
func (p *program) consume() error {
	consumer, err := sarama.NewConsumer(p.brokers, config())
	if err != nil {
		return err
	}
	defer consumer.Close()
	client, err := sarama.NewClient(p.brokers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	n, next := 0, map[string]int{}
	for part := range int32(partitions) {
		var end int64
		if err := await("all records are there", func() (bool, error) { // acks=0 is answered before they are
			sum := int64(0)
			for q := range int32(partitions) {
				o, err := client.GetOffset(topic, q, sarama.OffsetNewest)
				if err != nil {
					return false, err
				}
				if sum += o; q == part {
					end = o
				}
			}
			if sum != total {
				return false, fmt.Errorf("%d of %d", sum, total)
			}
			return true, nil
		}); err != nil {
			return err
		}
		got, err := readPartition(consumer, part, end, next)
		if err != nil {
			return fmt.Errorf("partition %d: %w", part, err)
		}
		n += got
	}
	if n != total {
		return fmt.Errorf("read %d records of %d", n, total)
	}
	return nil
}

func readPartition(consumer sarama.Consumer, part int32, end int64, next map[string]int) (int, error) {
	pc, err := consumer.ConsumePartition(topic, part, sarama.OffsetOldest)
	if err != nil {
		return 0, err
	}
	defer pc.Close()
	for offset := int64(0); offset < end; offset++ {
		select {
		case m := <-pc.Messages():
			form, i, _ := strings.Cut(string(m.Value), "/")
			value, _ := strconv.Atoi(i)
			first, _ := strconv.Atoi(string(m.Key))
			key := form + " " + string(m.Key)
			want, seen := next[key]
			if !seen {
				want = first
			}
			if m.Offset != offset || value != want || len(m.Headers) != 1 || string(m.Headers[0].Value) != form {
				return 0, fmt.Errorf("offset %d (want %d), %s: value %d (want %d), headers %v", m.Offset, offset, key, value, want, m.Headers)
			}
			next[key] = value + keys
		case <-time.After(patience):
			return 0, fmt.Errorf("nothing at offset %d of %d", offset, end)
		}
	}
	return int(end), nil
}

// member is one of a group; its handler counts and commits.
type member struct {
	sarama.ConsumerGroup
	stop  context.CancelFunc
	ended chan struct{}

	mu    sync.Mutex
	share int
	read  int
}

func (p *program) member() (*member, error) {
	c := config()
	c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond // each waits behind a Fetch on the same connection
	g, err := sarama.NewConsumerGroup(p.brokers, group, c)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{ConsumerGroup: g, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "member:", err)
			}
		}
	}()
	return m, nil
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = len(s.Claims()[topic])
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = 0
	return nil
}

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-c.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(r, "")
			m.mu.Lock()
			m.read++
			m.mu.Unlock()
		case <-s.Context().Done():
			return nil
		}
	}
}

func (m *member) counts() (share, read int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.share, m.read
}

func (m *member) leave() error {
	m.stop()
	<-m.ended
	return m.Close()
}

func (p *program) group() error {
	a, err := p.member()
	if err != nil {
		return err
	}
	b, err := p.member()
	if err != nil {
		return err
	}
	if err := await("two members share the partitions", func() (bool, error) {
		x, _ := a.counts()
		y, _ := b.counts()
		if x == 0 || y == 0 || x+y != partitions {
			return false, fmt.Errorf("%d and %d", x, y)
		}
		d, err := p.admin.DescribeConsumerGroups([]string{group})
		if err != nil {
			return false, err
		}
		return d[0].State == "Stable" && len(d[0].Members) == 2, nil
	}); err != nil {
		return err
	}
	if err := b.leave(); err != nil {
		return err
	}
	if err := await("the other has all, and all is committed", func() (bool, error) {
		x, _ := a.counts()
		sum, err := p.sumCommitted()
		if err != nil || x != partitions || sum != total {
			return false, fmt.Errorf("%d partitions, %d committed: %v", x, sum, err)
		}
		return true, nil
	}); err != nil {
		return err
	}
	return a.leave()
}

func (p *program) sumCommitted() (int64, error) {
	all := map[string][]int32{topic: {0, 1, 2}}
	r, err := p.admin.ListConsumerGroupOffsets(group, all)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for block := range maps.Values(r.Blocks[topic]) {
		if block.Err != sarama.ErrNoError {
			return 0, block.Err
		}
		sum += max(0, block.Offset)
	}
	return sum, nil
}

func (p *program) committed() error {
	if sum, err := p.sumCommitted(); err != nil || sum != total {
		return fmt.Errorf("%d committed, want %d: %v", sum, total, err)
	}
	c, err := p.member()
	if err != nil {
		return err
	}
	if err := await("it has its assignment", func() (bool, error) {
		x, _ := c.counts()
		return x == partitions, nil
	}); err != nil {
		return err
	}
	if err := p.produce("acks=all", sarama.WaitForAll, sarama.CompressionNone, false); err != nil { // only these are new to the group
		return err
	}
	if err := await("it reads on", func() (bool, error) {
		_, n := c.counts()
		return n >= each, nil
	}); err != nil {
		return err
	}
	if _, n := c.counts(); n != each {
		return fmt.Errorf("it read %d records, want %d", n, each)
	}
	return c.leave()
}

func (p *program) configs() error {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}
	of := func() (map[string]string, error) {
		entries, err := p.admin.DescribeConfig(resource)
		out := map[string]string{}
		for _, e := range entries {
			out[e.Name] = e.Value
		}
		return out, err
	}
	c, err := of()
	if err != nil || c["min.insync.replicas"] != "2" {
		return fmt.Errorf("min.insync.replicas=%s: %v", c["min.insync.replicas"], err)
	}
	hour := "3600000"
	if err := p.admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour}}, false); err != nil {
		return err
	}
	if err := await("the change is told", func() (bool, error) {
		c, err := of()
		return err == nil && c["retention.ms"] == hour && c["min.insync.replicas"] == "2", err
	}); err != nil {
		return err
	}
	if err := p.admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"max.message.bytes": &hour}, false); err != nil {
		return err
	}
	return await("all others have their defaults again", func() (bool, error) {
		c, err := of()
		return err == nil && c["max.message.bytes"] == hour && c["min.insync.replicas"] == "1", err
	})
}

func (p *program) partitions() error {
	if err := p.admin.CreatePartitions(topic, partitions+1, nil, false); err != nil {
		return err
	}
	return await("there is one more", func() (bool, error) {
		all, err := p.admin.DescribeTopics([]string{topic})
		return err == nil && len(all[0].Partitions) == partitions+1, err
	})
}

func (p *program) groups() error {
	listed, err := p.admin.ListConsumerGroups()
	if err != nil || listed[group] != "consumer" {
		return fmt.Errorf("groups %v: %v", listed, err)
	}
	d, err := p.admin.DescribeConsumerGroups([]string{group})
	if err != nil || d[0].State != "Empty" {
		return fmt.Errorf("group %+v: %v", d, err)
	}
	return p.admin.DeleteConsumerGroup(group)
}

func (p *program) delete() error {
	if err := p.admin.DeleteTopic(topic); err != nil {
		return err
	}
	return await("the topic is gone", func() (bool, error) {
		all, err := p.admin.ListTopics()
		_, there := all[topic]
		return err == nil && !there, err
	})
}
