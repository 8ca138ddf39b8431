package zkserver

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestPipeCarriesBytes: whatever the pieces, what goes in comes out, in order.
func TestPipeCarriesBytes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := newPipe()
		size := rapid.IntRange(0, 3*pipeRoom).Draw(r, "size")
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(i * 7)
		}
		in, out := rapid.IntRange(1, pipeRoom).Draw(r, "in"), rapid.IntRange(1, pipeRoom).Draw(r, "out")
		go func() {
			for p := want; len(p) > 0; {
				n := min(in, len(p))
				a.Write(p[:n])
				p = p[n:]
			}
			a.Close()
		}()
		var got []byte
		buf := make([]byte, out)
		for {
			n, err := b.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				r.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			r.Fatalf("%d bytes came, %d were sent", len(got), len(want))
		}
	})
}

func TestPipeDeadlinesAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe()
		start := time.Now()
		a.SetReadDeadline(start.Add(time.Minute))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("read: %v after %v", err, time.Since(start))
		}
		a.SetDeadline(time.Now().Add(time.Minute))
		if n, err := a.Write(make([]byte, pipeRoom+1)); !errors.Is(err, os.ErrDeadlineExceeded) || n != pipeRoom {
			t.Errorf("write into a full pipe: %d, %v", n, err)
		}
		a.SetDeadline(time.Time{})
		if _, err := io.ReadFull(b, make([]byte, pipeRoom)); err != nil {
			t.Error(err)
		}
		a.SetReadDeadline(time.Now().Add(-time.Second))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline that has passed: %v", err)
		}
		a.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(time.Second)
			b.Write([]byte("x"))
			b.Close()
		}()
		got, err := io.ReadAll(a)
		if err != nil || string(got) != "x" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := a.Write([]byte("y")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a closed pipe: %v", err)
		}
		a.Close()
		if _, err := a.Read(nil); err == nil {
			t.Error("read from one's own closed end")
		}
	})
}
