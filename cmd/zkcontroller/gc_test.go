package main

import "testing"

func TestBrokersRoom(t *testing.T) {
	for _, c := range []struct{ live, want uint64 }{{1 << 20, 4 << 20}, {200 << 20, 50 << 20}, {1 << 30, 96 << 20}} {
		if got := brokersRoom(c.live); got != c.want {
			t.Errorf("room beside %d live bytes: %d, want %d", c.live, got, c.want)
		}
	}
}
