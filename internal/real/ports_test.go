package real_test

import (
	"sync"
	"testing"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// Nobody is given a port that somebody else was given a moment ago and has not
// opened yet.
func TestFreePortsDiffer(t *testing.T) {
	const askers, each = 8, 25
	var mu sync.Mutex
	given := map[int]bool{}
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range each {
				port, err := real.FreePort()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if given[port] {
					t.Errorf("port %d was given twice", port)
				}
				given[port] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
