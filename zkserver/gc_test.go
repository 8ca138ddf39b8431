package zkserver

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestTuneGC(t *testing.T) {
	for _, c := range []struct{ live, want uint64 }{{1 << 20, 12 << 20}, {200 << 20, 25 << 20}, {1 << 30, 64 << 20}} {
		if got := gcRoom(c.live); got != c.want {
			t.Errorf("room beside %d live bytes: %d, want %d", c.live, got, c.want)
		}
	}
	former := debug.SetGCPercent(123)
	defer debug.SetGCPercent(former)
	stop := TuneGC(nil)
	ballast := make([]byte, 100<<20)
	for debug.SetGCPercent(400) == 400 { // until a collection has shown how much lives
		runtime.GC()
	}
	runtime.KeepAlive(ballast)
	stop()
	stop()
	if got := debug.SetGCPercent(123); got != 123 {
		t.Errorf("after stop the percentage is %d, want the former 123", got)
	}
}
