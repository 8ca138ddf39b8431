package zkpaths_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// oracle is a Java process that runs Kafka's own codecs (testdata/KafkaCodec.java).
type oracle struct {
	in     *bufio.Writer
	out    *bufio.Scanner
	stderr bytes.Buffer
}

// startOracle starts Kafka 3.9.1's codecs, or skips the test.
func startOracle(t *testing.T) *oracle {
	t.Helper()
	real.Require(t, real.Kafka)
	jars := real.JarSet("3.9.1")
	if jars == "" {
		real.Missing(t, real.Kafka, "no jars of 3.9.1 under "+real.JarsDir(), "run recipes/kafka-jars.sh DEST 3.9.1 and name DEST in ZKC_JARS")
	}
	cmd := exec.CommandContext(t.Context(), "java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(jars, "*"), "testdata/KafkaCodec.java")
	o := &oracle{}
	cmd.Stderr = &o.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	o.in, o.out = bufio.NewWriter(in), bufio.NewScanner(out)
	o.out.Buffer(nil, 1<<20)
	return o
}

// through gives what Kafka writes for the value it reads from data; ok is false
// with its reason when it cannot read it.
func (o *oracle) through(t *testing.T, codec string, data []byte) (back []byte, ok bool, reason string) {
	t.Helper()
	fmt.Fprintf(o.in, "%s\t%s\n", codec, base64.StdEncoding.EncodeToString(data))
	if err := o.in.Flush(); err != nil || !o.out.Scan() {
		t.Fatalf("Kafka's codecs ended: %v %v %s", err, o.out.Err(), o.stderr.String())
	}
	verdict, rest, _ := strings.Cut(o.out.Text(), "\t")
	if verdict != "ok" {
		return nil, false, rest
	}
	back, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		t.Fatal(err)
	}
	return back, true, ""
}

// comparable makes values of JSON text that Kafka's writer and ours may differ
// in without meaning: its clock, the order of what it keeps as sets or maps.
func comparable(codec string, text []byte) any {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return string(text)
	}
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	delete(o, "timestamp")
	if o["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAA" {
		delete(o, "topic_id") // Kafka writes the id that means none, if it read it
	}
	if list, ok := o["partitions"].([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	if codec == "broker" && o["version"].(float64) > 5 {
		o["version"] = 5.0 // kept by Kafka in memory, never written by it
	}
	return v
}

// judged are the payloads that Kafka's codecs can be asked about.
var judged = map[string]bool{"controller": true, "controller_epoch": true, "broker": true, "topic": true, "state": true, "reassign_strict": true,
	"preferred": true, "isr": true, "log_dir": true, "config": true, "cluster_id": true, "producer_block": true, "features": true, "migration": true}

// kafkaDiffers has the payloads of which Kafka 3.9.1 reads more or less than we do.
var kafkaDiffers = map[string]string{
	"controller  7 ":        "only releases before 0.8 wrote the bare number",
	"controller_epoch 12\n": "a line break behind the number changes nothing",
	"controller_epoch -1":   "an epoch is never negative",
	`producer_block {"broker":1,"block_start":0,"block_end":999}`:    "a plain number means the same",
	`producer_block {"broker":1,"block_start":"10","block_end":"9"}`: "such a block would give ids out twice",
	`topic {"partitions":{"-1":[1]}}`:                                "no partition has that number",
	`topic {"partitions":{"0":[1],"00":[2]}}`:                        "which of the two is meant is a guess",
	`preferred {"partitions":[{"topic":"","partition":0}]}`:          "no topic has that name",
	`isr {"partitions":[{"topic":"a","partition":-1}]}`:              "no partition has that number",
	`log_dir {"version":1,"broker":1}`:                               "what happened is not said",
	`config {"version":1,"config":[]}`:                               "it is not a configuration, so there may be overrides that are not known",
}

// asNewest encodes value in the version that Kafka 3.9 would write.
func asNewest(c codec, value any) []byte {
	switch v := value.(type) {
	case zkpaths.Topic:
		v.Version = 3
		value = v
	case zkpaths.ControllerNode:
		v.Version = 2
		value = v
	}
	return c.encode(value)
}

// TestKafkaAgrees: Kafka 3.9.1 reads what we read as the same value, and writes
// the same JSON for it. Where it reads less or more, the reason stands here.
func TestKafkaAgrees(t *testing.T) {
	o := startOracle(t)
	inputs := 0
	compare := func(c codec, data []byte, differs string) {
		inputs++
		value, ourErr := c.decode(data)
		back, ok, reason := o.through(t, c.name, data)
		if differs == "" && ok != (ourErr == nil) {
			t.Errorf("%s %q: Kafka: %v %s; we: %v", c.name, data, ok, reason, ourErr)
		}
		if differs != "" && ok == (ourErr == nil) {
			t.Errorf("%s %q: should differ because %s", c.name, data, differs)
		}
		if !ok || ourErr != nil {
			return
		}
		ours := c.encode(value)
		if diff := cmp.Diff(comparable(c.name, back), comparable(c.name, asNewest(c, value))); diff != "" {
			t.Errorf("%s %q: written differently (-Kafka +ours):\n%s", c.name, data, diff)
		}
		if _, ok, reason := o.through(t, c.name, ours); !ok {
			t.Errorf("%s: Kafka cannot read what we wrote, %q: %s", c.name, ours, reason)
		}
	}
	try := func(codec, data string) {
		if judged[codec] {
			compare(find(t, codec), []byte(data), kafkaDiffers[codec+" "+data])
		}
	}
	for _, e := range examples {
		try(e.codec, e.data)
	}
	for _, e := range tolerated {
		try(e.codec, e.data)
		try(e.codec, e.same)
	}
	for _, e := range unreadable {
		try(e.codec, e.data)
	}
	for _, g := range goldens(t) {
		try(g.codec, string(g.data))
	}
	if t.Failed() {
		return
	}
	rapid.Check(t, func(r *rapid.T) {
		kind := rapid.SampledFrom([]string{"state", "topic"}).Draw(r, "kind")
		data := jsonText(r, kind)
		c := find(t, kind)
		_, ourErr := c.decode(data)
		_, ok, reason := o.through(t, kind, data)
		// Kafka takes odd spellings of a partition's number and negative ones, does
		// not look at what moves in a partition that is not there, and cuts the
		// recovery state down to a byte. It believes leaders and epochs that nobody
		// can have written, and counts on from them.
		if ourErr != nil && ok && !slices.ContainsFunc([]string{"no partition number", "adding_replicas", "removing_replicas", "neither 0 nor 1",
			"impossible leader", "impossible controller epoch", "a leader epoch that cannot be"},
			func(s string) bool { return strings.Contains(ourErr.Error(), s) }) {
			r.Fatalf("%s %q: Kafka reads it, we do not: %v", kind, data, ourErr)
		}
		if ourErr == nil && !ok {
			r.Fatalf("%s %q: we read it, Kafka does not: %s", kind, data, reason)
		}
		if ok && ourErr == nil {
			compare(c, data, "")
		}
	})
	t.Logf("%d payloads compared", inputs)
}
