package zkserver

import (
	"fmt"
	"runtime"
	"testing"
)

// benchTree has one session, and dirs directories with kids children of 100
// bytes each, made by multis of 500.
func benchTree(b testing.TB, dirs, kids int) *Tree {
	t := NewTree()
	t.OpenSession(1)
	data := make([]byte, 100)
	ops := make([]Op, 0, 500)
	flush := func() {
		if code := t.Multi(Who{Session: 1}, 1_700_000_000_000, ops).Code(); code != OK {
			b.Fatal(code)
		}
		ops = ops[:0]
	}
	n := 0
	for d := range dirs {
		ops = append(ops, Op{Path: fmt.Sprintf("/parent-%03d", d), ACL: OpenACL()})
		for range kids {
			ops = append(ops, Op{Path: fmt.Sprintf("/parent-%03d/node-%08d", d, n), Data: data, ACL: OpenACL()})
			n++
			if len(ops) == cap(ops) {
				flush()
			}
		}
	}
	flush()
	return t
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkMemory(b *testing.B) {
	for _, kids := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(100*kids), func(b *testing.B) {
			for b.Loop() {
				before := liveHeap()
				t := benchTree(b, 100, kids)
				b.ReportMetric(float64(liveHeap()-before)/float64(t.Len()), "B/znode")
				runtime.KeepAlive(t)
			}
		})
	}
}

// nodePaths are the paths of benchTree(dirs, kids), strewn.
func nodePaths(dirs, kids int) []string {
	paths := make([]string, dirs*kids)
	for i := range paths {
		j := i * 7919 % len(paths)
		paths[i] = fmt.Sprintf("/parent-%03d/node-%08d", j/kids, j)
	}
	return paths
}

func BenchmarkRead(b *testing.B) {
	t, paths := benchTree(b, 100, 1000), nodePaths(100, 1000)
	who := Who{Session: 1, Identities: []Identity{{"ip", "127.0.0.1"}}}
	b.Run("exists", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, code := t.Exists(who, paths[i%len(paths)]); code != OK {
				b.Fatal(code)
			}
		}
	})
	b.Run("absent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, code := t.Exists(who, "/parent-007/missing"); code != NoNode {
				b.Fatal(code)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if data, _, _ := t.GetData(who, paths[i%len(paths)]); len(data) != 100 {
				b.Fatal(len(data))
			}
		}
	})
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n, _ := t.CountDescendants(who, "/parent-007"); n != 1000 {
				b.Fatal(n)
			}
		}
	})
}

func BenchmarkChildren(b *testing.B) {
	t := benchTree(b, 1, 10_000)
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if names, _, _ := t.GetChildren(Who{}, "/parent-000"); len(names) != 10_000 {
				b.Fatal(len(names))
			}
		}
	})
	b.Run("into the same memory", func(b *testing.B) {
		b.ReportAllocs()
		var names []string
		for b.Loop() {
			if names, _, _ = t.AppendChildren(names[:0], Who{}, "/parent-000"); len(names) != 10_000 {
				b.Fatal(len(names))
			}
		}
	})
	b.Run("changing", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			t.Write(Who{Session: 1}, 0, Op{Path: "/parent-000/a-", Mode: PersistentSequential, ACL: OpenACL()})
			names, _, _ := t.GetChildren(Who{}, "/parent-000")
			t.Write(Who{Session: 1}, 0, Op{Kind: OpDelete, Path: "/parent-000/" + names[0], Version: AnyVersion})
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	paths := nodePaths(100, 1000)
	data, who, acl := make([]byte, 100), Who{Session: 1}, OpenACL()
	b.Run("set", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			t.Write(who, int64(i), Op{Kind: OpSet, Path: paths[i%len(paths)], Data: data, Version: AnyVersion})
		}
	})
	b.Run("create+delete", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		b.ReportAllocs()
		for b.Loop() {
			t.Write(who, 0, Op{Path: "/parent-050/zzz", Data: data, ACL: acl})
			t.Write(who, 0, Op{Kind: OpDelete, Path: "/parent-050/zzz", Version: AnyVersion})
		}
	})
	b.Run("sequential+delete", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		b.ReportAllocs()
		for b.Loop() {
			r := t.Write(who, 0, Op{Path: "/parent-050/zzz-", Mode: EphemeralSequential, Data: data, ACL: acl})
			t.Write(who, 0, Op{Kind: OpDelete, Path: r.Ops[0].Path, Version: AnyVersion})
		}
	})
	b.Run("multi100set", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		ops := make([]Op, 100)
		for i := range ops {
			ops[i] = Op{Kind: OpSet, Path: paths[i], Data: data, Version: AnyVersion}
		}
		b.ReportAllocs()
		for b.Loop() {
			t.Multi(who, 0, ops)
		}
	})
	b.Run("multi100set into the same memory", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		ops := make([]Op, 100)
		for i := range ops {
			ops[i] = Op{Kind: OpSet, Path: paths[i], Data: data, Version: AnyVersion}
		}
		b.ReportAllocs()
		var room []OpResult
		for b.Loop() {
			room = t.MultiInto(who, 0, ops, room).Ops
		}
	})
	b.Run("multi100failing", func(b *testing.B) {
		t := benchTree(b, 100, 1000)
		ops := make([]Op, 100)
		for i := range ops {
			ops[i] = Op{Path: fmt.Sprintf("/parent-003/x-%d", i), Data: data, ACL: acl}
		}
		ops[99].Path = "/parent-003"
		b.ReportAllocs()
		for b.Loop() {
			t.Multi(who, 0, ops)
		}
	})
}

func BenchmarkWatch(b *testing.B) {
	b.Run("arm+fire", func(b *testing.B) {
		t := benchTree(b, 1, 1000)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			t.Watch(7, DataWatch, "/parent-000/node-00000005")
			if r := t.Write(Who{Session: 1}, 0, Op{Kind: OpSet, Path: "/parent-000/node-00000005", Version: AnyVersion}); len(r.Fired) != 1 {
				b.Fatal(r)
			}
		}
	})
	b.Run("20000 of one node", func(b *testing.B) {
		t := benchTree(b, 1, 1000)
		b.ReportAllocs()
		for b.Loop() {
			for w := range 20_000 {
				t.Watch(Watcher(w+1), DataWatch, "/parent-000")
				t.Watch(Watcher(w+1), ChildWatch, "/parent-000")
			}
			for w := range 10_000 {
				t.DropWatcher(Watcher(w + 1))
			}
			r := t.Multi(Who{Session: 1}, 0, []Op{{Kind: OpSet, Path: "/parent-000", Version: AnyVersion},
				{Path: "/parent-000/y", ACL: OpenACL()}, {Kind: OpDelete, Path: "/parent-000/y", Version: AnyVersion}})
			if len(r.Fired) != 20_000 {
				b.Fatal(len(r.Fired))
			}
		}
	})
}

func BenchmarkCloseSession(b *testing.B) {
	t := NewTree()
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		t.OpenSession(1)
		for range 100_000 {
			t.Write(Who{Session: 1}, 0, Op{Path: "/e-", Mode: EphemeralSequential, ACL: OpenACL()})
		}
		b.StartTimer()
		if r := t.CloseSession(1); len(r.Closed) != 100_000 {
			b.Fatal(len(r.Closed))
		}
	}
}
