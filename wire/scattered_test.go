package wire

import (
	"context"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// scattered is a Metadata response whose cluster id stands elsewhere, in pieces.
type scattered struct {
	*kmsg.MetadataResponse
	pieces []string
}

// AppendScattered leaves the id out of what is appended.
func (s scattered) AppendScattered(dst []byte) ([]byte, []Insert) {
	const mark = "mark"
	s.ClusterID = new(mark)
	begun := len(dst)
	dst = s.AppendTo(dst)
	at := begun + len(s.AppendTo(nil)) - 4 - 4 - len(mark) // controller id and an empty list come behind it
	id := ""
	in := Insert{At: at}
	for _, p := range s.pieces {
		in.Bytes = append(in.Bytes, []byte(p))
		id += p
	}
	dst = append(dst[:at], dst[at+len(mark):]...)
	dst[at-1] = byte(len(id)) // a string's length in two bytes
	return dst, []Insert{in}
}

// A response whose bytes are elsewhere arrives as one that was copied together.
func TestScattered(t *testing.T) {
	for want, pieces := range map[string][]string{"orders-cluster": {"or", "", "ders-", "cluster"}, "": nil} {
		s, _ := serve(t, ServerOptions{}, func(_ context.Context, r *Request) {
			r.Reply(scattered{kmsg.NewPtrMetadataResponse(), pieces})
		})
		c := dial(t, s)
		for range 3 {
			if got := clusterID(t, c, 3); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

// A request that wants no answer gets none, and the connection goes on.
func TestDone(t *testing.T) {
	silent := true
	s, _ := serve(t, ServerOptions{}, func(ctx context.Context, r *Request) {
		if silent {
			silent = false
			r.Done()
			return
		}
		echo(ctx, r)
	})
	nc := rawDial(t, s)
	for corr := byte(1); corr <= 2; corr++ {
		body := metadata(0).AppendTo([]byte{0, 3, 0, 0, 0, 0, 0, corr, 0, 1, 'c'})
		if _, err := nc.Write(frame(body)); err != nil {
			t.Fatal(err)
		}
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(nc, head); err != nil || head[7] != 2 {
		t.Errorf("%v, %v: want the second request's answer", head, err)
	}
}
