package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Every field case is checked, with our own tools; only steps of commands that
// are not built are left out.
func TestCases(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"cases", "run", "../../testdata/cases"}, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	notBuilt := regexp.MustCompile(`step \d+: (doctor|rehearse) is not built`)
	other := regexp.MustCompile(`step \d+: |runner|is as it was`)
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "skip ") && other.MatchString(notBuilt.ReplaceAllString(line, "")) {
			t.Error(line)
		}
	}
	for _, id := range []string{"R-128", "R-129", "R-142"} {
		if !strings.Contains(out.String(), "pass "+id+" ") {
			t.Errorf("%s did not pass", id)
		}
	}
}

// A plan is refused as soon as it does not fit, with as many pieces as it needs.
func TestFitsZnode(t *testing.T) {
	moves := func(n int) []zkpaths.Reassignment {
		out := make([]zkpaths.Reassignment, n)
		for i := range out {
			out[i] = zkpaths.Reassignment{Partition: kafka.TopicPartition{Topic: "a.topic.with.a.long.name", Partition: int32(i)}, Replicas: []kafka.BrokerID{1, 2, 3}}
		}
		return out
	}
	fits := 0
	for low, high := 0, 100_000; low < high; { // the largest plan that fits
		if n := (low + high + 1) / 2; fitsZnode(moves(n)) == nil {
			low, fits = n, n
		} else {
			high = n - 1
		}
	}
	if size := len(zkpaths.EncodeReassignments(moves(fits))); size > planRoom || size < planRoom-200 {
		t.Errorf("%d moves of %d bytes fit", fits, size)
	}
	for n, want := range map[int]int{fits + 1: 2, 2*fits - 1000: 2, 3*fits + 100: 4} {
		err := fitsZnode(moves(n))
		if exitCode(err) != 4 || !strings.Contains(err.Error(), "1048575") || !strings.Contains(err.Error(), fmt.Sprintf("at least %d files", want)) {
			t.Errorf("%d moves: %v", n, err)
		}
	}
}
