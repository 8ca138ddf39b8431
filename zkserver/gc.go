package zkserver

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// gcRoom is how much garbage a heap of some live size may gather before it is
// collected. A percentage alone makes small heaps collect all the time and
// large ones take twice their size.
func gcRoom(live uint64) uint64 {
	const small, large = 12 << 20, 64 << 20
	return min(max(live/8, small), large)
}

// TuneGC lets the garbage collector of this process run by a room in bytes
// instead of a percentage: a command that is a server and nothing else calls
// it once. room gives the bytes of garbage that may gather beside some bytes
// that live; nil is what suits a server of znodes, whose collections are cheap.
// stop ends it and brings the former setting back.
func TuneGC(room func(live uint64) uint64) (stop func()) {
	if room == nil {
		room = gcRoom
	}
	var stopped atomic.Bool
	former := debug.SetGCPercent(400)
	last := 400
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var tune func(*gcWatch)
	tune = func(w *gcWatch) {
		if stopped.Load() {
			return
		}
		metrics.Read(live)
		if n := live[0].Value.Uint64(); n > 0 {
			percent := int(math.Ceil(100 * float64(room(n)) / float64(n)))
			if percent = min(percent, 800); percent < last*9/10 || percent > last*11/10 {
				last = percent
				debug.SetGCPercent(percent)
			}
		}
		runtime.SetFinalizer(w, tune) // again after the next collection
	}
	runtime.SetFinalizer(&gcWatch{}, tune)
	return func() {
		if stopped.CompareAndSwap(false, true) {
			debug.SetGCPercent(former)
		}
	}
}

// gcWatch is garbage as soon as it is made: its finalizer runs after each collection.
type gcWatch struct{ _ [32]byte }
