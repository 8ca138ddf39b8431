package commitlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Kafka's files of offsets, one of each in a log directory.
const (
	HighWatermarkFile  = "replication-offset-checkpoint"
	RecoveryPointFile  = "recovery-point-offset-checkpoint"
	LogStartOffsetFile = "log-start-offset-checkpoint"
)

// ReadOffsets reads a file of offsets as Kafka writes it. One that is not there
// holds none.
func ReadOffsets(path string) (map[kafka.TopicPartition]int64, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return map[kafka.TopicPartition]int64{}, nil
	}
	if err != nil {
		return nil, &StorageError{"read", path, err}
	}
	bad := func(err error) error {
		return &StorageError{"read", path, fmt.Errorf("%w; remove it, and offsets begin at 0 until the next checkpoint", err)}
	}
	lines, err := parseCheckpoint(data, 3)
	if err != nil {
		return nil, bad(err)
	}
	out := make(map[kafka.TopicPartition]int64, len(lines))
	for _, f := range lines {
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		o, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || o < 0 {
			return nil, bad(fmt.Errorf("%q is no topic, partition and offset", strings.Join(f, " ")))
		}
		out[kafka.TopicPartition{Topic: f[0], Partition: int32(p)}] = o
	}
	return out, nil
}

// WriteOffsets replaces a file of offsets: a reader, or a start after a crash,
// finds the old one or the new one whole.
func WriteOffsets(path string, offsets map[kafka.TopicPartition]int64) error {
	tps := make([]kafka.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		tps = append(tps, tp)
	}
	kafka.SortPartitions(tps)
	b := fmt.Appendf(nil, "0\n%d\n", len(tps))
	for _, tp := range tps {
		b = fmt.Appendf(b, "%s %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return writeFile(path, b, true)
}

// parseCheckpoint reads a version, a number of lines, and as many lines of words.
func parseCheckpoint(data []byte, words int) ([][]string, error) {
	lines := strings.Split(strings.TrimSuffix(string(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))), "\n"), "\n")
	if lines[0] != "0" {
		return nil, fmt.Errorf("version %q is not 0", shown(lines[0]))
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("the number of lines is missing")
	}
	if n, err := strconv.Atoi(strings.TrimSpace(lines[1])); err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%q lines are announced, there are %d", shown(lines[1]), len(lines)-2)
	}
	out := make([][]string, 0, len(lines)-2)
	for _, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != words {
			return nil, fmt.Errorf("line %q has not %d words", shown(line), words)
		}
		out = append(out, f)
	}
	return slices.Clip(out), nil
}

// shown is the begin of what may be a whole file of garbage.
func shown(line string) string { return line[:min(len(line), 40)] }

// writeFile replaces a file's contents at once; with sync they survive a loss of
// power, too.
func writeFile(path string, data []byte, sync bool) error {
	tmp := path + tmpSuffix
	f, err := os.Create(tmp)
	if err != nil {
		return &StorageError{"create", tmp, err}
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return &StorageError{"write", tmp, err}
	}
	if err := os.Rename(tmp, path); err != nil {
		return &StorageError{"replace", path, err}
	}
	if sync {
		return syncDir(filepath.Dir(path))
	}
	return nil
}
