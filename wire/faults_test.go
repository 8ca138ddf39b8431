package wire

import (
	"net"
	"testing"
	"time"
)

// TestFaultsAreToldOnce: a host that does the same over and over fills no log.
func TestFaultsAreToldOnce(t *testing.T) {
	var f faults
	now := time.Unix(0, 0)
	from := func(ip byte, port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, ip), Port: port} }
	told := 0
	for i := range 1000 {
		if _, tell := f.note(from(1, 1000+i), &complaint{"no", 1, 2, nil}, now); tell {
			told++
		}
	}
	if told != 1 {
		t.Errorf("1000 times the same from one host: told %d times", told)
	}
	for _, c := range []*complaint{{"no", 1, 3, nil}, {"other", 1, 2, nil}} {
		if _, tell := f.note(from(1, 1), c, now); !tell {
			t.Errorf("another fault of that host is not told: %+v", c)
		}
	}
	if _, tell := f.note(from(2, 1), &complaint{"no", 1, 2, nil}, now); !tell {
		t.Error("the same fault of another host is not told")
	}
	now = now.Add(faultPause)
	if more, tell := f.note(from(1, 1), &complaint{"no", 1, 2, nil}, now); !tell || more != 999 {
		t.Errorf("a minute later: told %v, %d more", tell, more)
	}
	told = 0
	for i := range 60_000 {
		if _, tell := f.note(from(1, 1), &complaint{"no", int16(i), int16(i >> 8), nil}, now); tell {
			told++
		}
	}
	if told > 2*maxFaults || len(f.told) > maxFaults {
		t.Errorf("many kinds of fault at once: %d told, %d remembered", told, len(f.told))
	}
}
