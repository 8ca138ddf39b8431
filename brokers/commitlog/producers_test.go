package commitlog

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// idempotent makes a batch of producer 9.
func idempotent(t testing.TB, epoch int16, seq int32, n int) Batch {
	t.Helper()
	s := NoProducerSpec()
	s.ProducerID, s.ProducerEpoch, s.BaseSequence = 9, epoch, seq
	b, err := s.Encode(records(n, "p")...)
	must(t, err)
	return b
}

func TestSequences(t *testing.T) {
	type try struct {
		epoch int16
		seq   int32
		n     int
		code  kafka.ErrorCode
		base  int64
		dup   bool
	}
	for what, tries := range map[string][]try{
		"in order": {{0, 0, 3, 0, 0, false}, {0, 3, 2, 0, 3, false}},
		"gap":      {{0, 0, 3, 0, 0, false}, {0, 4, 2, kafka.OutOfOrderSequenceNumber, 0, false}, {0, 3, 1, 0, 3, false}},
		"one of the last five again": {{0, 0, 1, 0, 0, false}, {0, 1, 1, 0, 1, false}, {0, 2, 2, 0, 2, false}, {0, 4, 1, 0, 4, false}, {0, 5, 1, 0, 5, false},
			{0, 0, 1, 0, 0, true}, {0, 2, 2, 0, 2, true}, {0, 2, 1, kafka.OutOfOrderSequenceNumber, 0, false}, {0, 6, 1, 0, 6, false}, {0, 0, 1, kafka.OutOfOrderSequenceNumber, 0, false}},
		"unknown begins anywhere":  {{3, 77, 2, 0, 0, false}, {3, 79, 1, 0, 2, false}},
		"new epoch begins with 0":  {{0, 0, 1, 0, 0, false}, {1, 1, 1, kafka.OutOfOrderSequenceNumber, 0, false}, {1, 0, 1, 0, 1, false}, {1, 1, 1, 0, 2, false}},
		"old epoch":                {{2, 0, 1, 0, 0, false}, {1, 1, 1, kafka.InvalidProducerEpoch, 0, false}, {1, 0, 1, kafka.InvalidProducerEpoch, 0, false}},
		"after the last number: 0": {{0, math.MaxInt32, 1, 0, 0, false}, {0, 0, 1, 0, 1, false}, {0, math.MaxInt32, 1, 0, 0, true}},
		"a batch over the last number": {{0, math.MaxInt32 - 1, 3, 0, 0, false}, {0, 0, 1, kafka.OutOfOrderSequenceNumber, 0, false}, {0, 1, 1, 0, 3, false},
			{0, math.MaxInt32 - 1, 3, 0, 0, true}},
	} {
		t.Run(what, func(t *testing.T) {
			both(t, Options{}, func(t *testing.T, l *Log) {
				for i, c := range tries {
					b := idempotent(t, c.epoch, c.seq, c.n)
					got, err := l.Append(b, 1, at)
					if Code(err) != c.code {
						t.Fatalf("%d: %v, want %s", i, err, c.code)
					}
					if err == nil && (got.BaseOffset != c.base || got.Duplicate != c.dup || got.LastOffset != c.base+int64(c.n)-1) {
						t.Fatalf("%d: %+v, want %+v", i, got, c)
					}
				}
			})
		})
	}
}

// One append of two batches counts as a whole.
func TestSequencesWithinAnAppend(t *testing.T) {
	l := New(Options{})
	bad := append(idempotent(t, 0, 0, 2), idempotent(t, 0, 3, 1)...)
	if _, err := l.Append(bad, 1, at); Code(err) != kafka.OutOfOrderSequenceNumber || l.LogEndOffset() != 0 || l.Producers() != 0 {
		t.Errorf("%v, LEO %d", err, l.LogEndOffset())
	}
	good := append(idempotent(t, 0, 0, 2), idempotent(t, 0, 2, 1)...)
	if got, err := l.Append(good, 1, at); err != nil || got.LastOffset != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := l.Append(idempotent(t, 0, 2, 1), 1, at); err != nil || !got.Duplicate || got.BaseOffset != 2 {
		t.Errorf("%+v %v", got, err)
	}
}

// A follower takes what its leader took, and knows the producers when it leads.
func TestFollowerKnowsProducers(t *testing.T) {
	leader, f := New(Options{}), New(Options{})
	for i := range int32(7) {
		_, err := leader.Append(idempotent(t, 2, i, 1), 1, at)
		must(t, err)
	}
	got, err := leader.Read(0, 1<<20, 7, true)
	must(t, err)
	must(t, f.AppendAsFollower(bytes.Join(got, nil)))
	if a, err := f.Append(idempotent(t, 2, 6, 1), 2, at); err != nil || !a.Duplicate || a.BaseOffset != 6 {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := f.Append(idempotent(t, 2, 8, 1), 2, at); Code(err) != kafka.OutOfOrderSequenceNumber {
		t.Errorf("%v", err)
	}
	must(t, f.TruncateTo(3))
	if a, err := f.Append(idempotent(t, 2, 3, 1), 2, at); err != nil || a.Duplicate || a.BaseOffset != 3 {
		t.Errorf("after truncation: %+v %v", a, err)
	}
	must(t, f.TruncateTo(0))
	if f.Producers() != 0 {
		t.Errorf("%d producers in an empty log", f.Producers())
	}
}

func TestProducersExpire(t *testing.T) {
	l := New(Options{ProducerIDExpiration: time.Hour})
	_, err := l.Append(idempotent(t, 0, 0, 1), 1, at)
	must(t, err)
	if n := l.ExpireProducers(at.Add(time.Hour - time.Millisecond)); n != 0 || l.Producers() != 1 {
		t.Errorf("%d expired before their time", n)
	}
	if n := l.ExpireProducers(at.Add(time.Hour)); n != 1 || l.Producers() != 0 {
		t.Errorf("%d expired", n)
	}
	if got, err := l.Append(idempotent(t, 0, 55, 1), 1, at); err != nil || got.BaseOffset != 1 {
		t.Errorf("an unknown producer goes on: %+v %v", got, err)
	}
}
