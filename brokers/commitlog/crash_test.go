package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// killed makes a folder as a process leaves it that is killed after appends, and
// gives the last segment's file, all the bytes of all batches, and where each ends.
func killed(t testing.TB, dir string) (last string, all []byte, ends []int) {
	t.Helper()
	l, err := Open(dir, Options{SegmentBytes: 500})
	must(t, err)
	must(t, l.AssignEpoch(3, 0))
	for i := range 9 {
		s := NoProducerSpec()
		s.Codec, s.ProducerID, s.ProducerEpoch, s.BaseSequence = codecs[i%len(codecs)], int64(i%2), 0, int32(i/2)
		b, err := s.Encode(records(1, fmt.Sprint(i))...)
		must(t, err)
		_, err = l.Append(b, int32(3+i/4), at)
		must(t, err)
		all = append(all, b...)
		ends = append(ends, len(all))
	}
	kill(l)
	return l.segments[len(l.segments)-1].path, all, ends
}

// kill leaves the files as a process does that is killed: nothing is flushed.
func kill(l *Log) {
	for _, s := range l.segments {
		s.close()
	}
}

// A log whose last file ends at any byte opens with the batches that are whole,
// and goes on from there.
func TestCutAtEveryByte(t *testing.T) {
	made := t.TempDir()
	last, all, ends := killed(t, made)
	data, err := os.ReadFile(last)
	must(t, err)
	first := len(all) - len(data) // where the last segment begins in all
	for cut := range len(data) + 1 {
		dir := t.TempDir()
		must(t, os.CopyFS(dir, os.DirFS(made)))
		must(t, os.Truncate(filepath.Join(dir, filepath.Base(last)), int64(cut)))
		checkRecovered(t, dir, fmt.Sprintf("cut at %d", cut), all, ends, first+cut)
	}
}

// The same with other bytes there instead of an end: what a batch's file block
// held before, zeros, or a byte that is wrong.
func TestWrongAtEveryByte(t *testing.T) {
	made := t.TempDir()
	last, all, ends := killed(t, made)
	data, err := os.ReadFile(last)
	must(t, err)
	first := len(all) - len(data)
	for at := range data {
		if inOffsetOrEpoch(data, at) {
			continue // the checksum does not cover those
		}
		for what, spoil := range map[string]func(b []byte){
			"flipped": func(b []byte) { b[at] ^= 0x40 },
			"zeros":   func(b []byte) { clear(b[at:]) },
		} {
			bad := bytes.Clone(data)
			if spoil(bad); bytes.Equal(bad, data) {
				continue
			}
			wrong := at
			for bad[wrong] == data[wrong] {
				wrong++
			}
			if inOffsetOrEpoch(data, wrong) {
				continue
			}
			dir := t.TempDir()
			must(t, os.CopyFS(dir, os.DirFS(made)))
			must(t, os.WriteFile(filepath.Join(dir, filepath.Base(last)), bad, 0o644))
			checkRecovered(t, dir, fmt.Sprintf("%s at %d", what, at), all, ends, first+wrong)
		}
	}
}

func inOffsetOrEpoch(data []byte, at int) bool {
	for b := range Batches(data) {
		if at < len(b) {
			return at < posLength || at >= posLeaderEpoch && at < posMagic
		}
		at -= len(b)
	}
	return false
}

// checkRecovered opens a folder that holds the first n bytes of all, and more
// that is not to be trusted.
func checkRecovered(t *testing.T, dir, what string, all []byte, ends []int, n int) {
	t.Helper()
	whole, size := 0, 0
	for whole < len(ends) && ends[whole] <= n {
		size = ends[whole]
		whole++
	}
	for range 2 { // the second time nothing is left to mend
		l, err := Open(dir, Options{SegmentBytes: 500})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, err := l.Read(0, 1<<30, 1<<40, true)
		must(t, err)
		if l.LogEndOffset() != int64(whole) || !bytes.Equal(bytes.Join(got, nil), all[:size]) || l.Size() != int64(size) {
			t.Fatalf("%s: %d batches in %d bytes, want %d in %d", what, l.LogEndOffset(), l.Size(), whole, size)
		}
		if want := int32(3 + max(0, whole-1)/4); l.LatestEpoch() != want && whole > 0 {
			t.Fatalf("%s: epochs %v, want the last to be %d", what, l.Epochs(), want)
		}
		if l.Producers() != min(whole, 2) {
			t.Fatalf("%s: %d producers", what, l.Producers())
		}
		kill(l)
	}
	l, err := Open(dir, Options{SegmentBytes: 500})
	must(t, err)
	defer kill(l)
	appendAs(t, l, 9, 1)
	if got := values(t, l, int64(whole), 100); len(got) != 1 {
		t.Fatalf("%s: after one more append: %v", what, got)
	}
}

// What was safe on disk is not cut off silently.
func TestDamageBelowRecoveryPoint(t *testing.T) {
	dir := t.TempDir()
	last, _, _ := killed(t, dir)
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	data, err := os.ReadFile(paths[0])
	must(t, err)
	must(t, os.WriteFile(paths[0], data[:len(data)-5], 0o644))
	_, err = Open(dir, Options{RecoveryPoint: 9})
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Path != paths[0] || paths[0] == last {
		t.Fatalf("%v", err)
	}
	l, err := Open(dir, Options{RecoveryPoint: 0})
	must(t, err)
	defer l.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*.log")); len(left) != 1 || l.RecoveredBytes() == 0 {
		t.Errorf("%v are left, %d bytes are said to be cut", left, l.RecoveredBytes())
	}
}

// An epoch that no record has yet is forgotten at the start, as Kafka does, and
// the file that is lost is made anew.
func TestEpochFile(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	must(t, err)
	must(t, l.AssignEpoch(2, 0))
	appendAs(t, l, 2, 3)
	must(t, l.AssignEpoch(4, 3))
	appendAs(t, l, 4, 2)
	must(t, l.AssignEpoch(5, 5))
	path := filepath.Join(dir, epochFile)
	data, err := os.ReadFile(path)
	must(t, err)
	if string(data) != "0\n3\n2 0\n4 3\n5 5\n" {
		t.Errorf("%q", data)
	}
	must(t, l.Close())
	want := []EpochEntry{{2, 0}, {4, 3}}
	for range 2 {
		l, err = Open(dir, Options{})
		must(t, err)
		if d := cmp.Diff(want, l.Epochs()); d != "" {
			t.Error(d)
		}
		must(t, l.Close())
		must(t, os.Remove(path))
	}
	for _, bad := range []string{"", "1\n0\n", "0\n2\n1 1\n", "0\n1\nx 1\n", "0\n1\n1 -1\n", "0\n1\n1\n"} {
		must(t, os.WriteFile(path, []byte(bad), 0o644))
		if _, err := Open(dir, Options{}); Code(err) != kafka.KafkaStorageError {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The end of an empty log is not lost, nor the start within a segment.
func TestPlacesSurvive(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	must(t, err)
	must(t, l.TruncateFullyAndStartAt(77))
	must(t, l.Close())
	l, err = Open(dir, Options{})
	must(t, err)
	if l.LogStartOffset() != 77 || l.LogEndOffset() != 77 || l.HighWatermark() != 77 {
		t.Errorf("%d %d %d", l.LogStartOffset(), l.HighWatermark(), l.LogEndOffset())
	}
	appendAs(t, l, 1, 5)
	must(t, l.Close())
	if err := l.AppendAsFollower(Encode(records(1, "late")...)); Code(err) != kafka.KafkaStorageError {
		t.Errorf("append to a closed log: %v", err)
	}
	for _, c := range []struct{ checkpoint, start int64 }{{0, 77}, {80, 80}, {99, 99}} {
		l, err = Open(dir, Options{LogStartOffset: c.checkpoint})
		must(t, err)
		if l.LogStartOffset() != c.start {
			t.Errorf("start %d, want %d", l.LogStartOffset(), c.start)
		}
		must(t, l.Close())
	}
	must(t, l.Delete())
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// Flush moves the recovery point, and flush.messages calls it.
func TestFlush(t *testing.T) {
	l, err := Open(t.TempDir(), Options{SegmentBytes: 200, FlushMessages: 4})
	must(t, err)
	defer l.Close()
	var got []int64
	for range 6 {
		appendAs(t, l, 1, 1)
		got = append(got, l.RecoveryPoint())
	}
	must(t, l.Flush())
	got = append(got, l.RecoveryPoint())
	must(t, l.TruncateTo(5))
	got = append(got, l.RecoveryPoint())
	if d := cmp.Diff([]int64{0, 0, 0, 4, 4, 4, 6, 5}, got); d != "" {
		t.Error(d)
	}
}

// A write that fails breaks the log until it is opened again, and loses nothing.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	must(t, err)
	appendAs(t, l, 1, 2)
	must(t, l.segments[0].file.Close())
	for range 2 {
		if _, err := l.Append(Encode(records(1, "x")...), 1, at); Code(err) != kafka.KafkaStorageError || l.LogEndOffset() != 2 {
			t.Errorf("%v, LEO %d", err, l.LogEndOffset())
		}
	}
	l, err = Open(dir, Options{})
	must(t, err)
	defer l.Close()
	if l.LogEndOffset() != 2 {
		t.Errorf("LEO %d", l.LogEndOffset())
	}
}

func TestCheckpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), HighWatermarkFile)
	if got, err := ReadOffsets(path); err != nil || len(got) != 0 {
		t.Errorf("no file: %v %v", got, err)
	}
	offsets := map[kafka.TopicPartition]int64{{Topic: "b", Partition: 10}: 3, {Topic: "b", Partition: 2}: 0, {Topic: "a-b.c_d", Partition: 0}: 1 << 40}
	for range 2 {
		must(t, WriteOffsets(path, offsets))
	}
	data, err := os.ReadFile(path)
	must(t, err)
	if want := "0\n3\na-b.c_d 0 1099511627776\nb 2 0\nb 10 3\n"; string(data) != want {
		t.Errorf("%q, want %q", data, want)
	}
	got, err := ReadOffsets(path)
	must(t, err)
	if d := cmp.Diff(offsets, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", "0", "2\n0\n", "0\n2\na 0 1\n", "0\nx\n", "0\n1\na 0\n", "0\n1\na b 1\n", "0\n1\na 0 -1\n"} {
		must(t, os.WriteFile(path, []byte(bad), 0o644))
		if got, err := ReadOffsets(path); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	made := f.TempDir()
	last, all, _ := killed(f, made)
	data, err := os.ReadFile(last)
	must(f, err)
	f.Add(all, []byte("0\n1\n3 0\n"), int64(0))
	f.Add(data, []byte("0\n0\n"), int64(5))
	f.Add([]byte{}, []byte{}, int64(0))
	f.Fuzz(func(t *testing.T, segment, epochs []byte, recoveryPoint int64) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, segmentName(0)), segment, 0o644))
		if len(epochs) > 0 {
			must(t, os.WriteFile(filepath.Join(dir, epochFile), epochs, 0o644))
		}
		l, err := Open(dir, Options{RecoveryPoint: recoveryPoint})
		if err != nil {
			if Code(err) != kafka.KafkaStorageError {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		defer l.Close()
		end := l.LogEndOffset()
		if _, err := l.Read(l.LogStartOffset(), 1<<20, end, true); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(end)
		if _, _, err := l.OffsetForTimestamp(1); err != nil && Code(err) == kafka.UnknownServerError {
			t.Fatal(err)
		}
		if _, err := l.Append(Encode(records(1, "x")...), 1, at); err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
		} else if l.LogEndOffset() != end+1 {
			t.Fatalf("end %d after one append at %d", l.LogEndOffset(), end)
		}
		if err := l.TruncateTo(end / 2); err != nil {
			t.Fatal(err)
		}
	})
}
