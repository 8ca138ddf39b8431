package zkstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// Benchmarks give the cost of one znode, against a real server.

func benchSession(b *testing.B) *zkstore.Session {
	b.Helper()
	s, err := zkstore.Dial(b.Context(), zkstore.Options{Servers: []string{shared.Get(b).Addr()}, Chroot: fmt.Sprintf("/bench-%d", b.N), ConnectTimeout: patience}, func(zkpaths.Notice) {})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}

const benchNodes = 10_000

func benchTree(b *testing.B, s *zkstore.Session) []string {
	b.Helper()
	if n := read(b, s, get("/n"))[0]; n.Code == zkpaths.NoNode {
		mustApply(b, s, zkpaths.Unfenced, create("/controller_epoch", "1"))
		return grow(b, s, benchNodes)
	}
	paths := make([]string, benchNodes)
	for i := range paths {
		paths[i] = fmt.Sprintf("/n/%05d", i)
	}
	return paths
}

func BenchmarkRead(b *testing.B) {
	for _, watch := range []bool{false, true} {
		b.Run(fmt.Sprintf("watch=%t", watch), func(b *testing.B) {
			s := benchSession(b)
			rs := gets(benchTree(b, s), watch)
			before := s.Stats()
			for b.Loop() {
				read(b, s, rs...)
			}
			report(b, s, before)
		})
	}
}

func BenchmarkFencedWrite(b *testing.B) {
	s := benchSession(b)
	paths := benchTree(b, s)
	ws := make([]zkpaths.Write, len(paths))
	data := `{"controller_epoch":7,"leader":2,"version":1,"leader_epoch":1,"isr":[2,3,4]}`
	for i, p := range paths {
		ws[i] = set(p, data, zkpaths.AnyVersion)
	}
	before := s.Stats()
	for b.Loop() {
		mustApply(b, s, 0, ws...)
	}
	report(b, s, before)
}

func report(b *testing.B, s *zkstore.Session, before zkstore.Stats) {
	after := s.Stats()
	nodes := float64(b.N) * benchNodes
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/nodes, "ns/znode")
	b.ReportMetric(float64(after.Packets+after.BulkPackets-before.Packets-before.BulkPackets)/nodes*1000, "packets/1000znodes")
}
