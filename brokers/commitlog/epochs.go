package commitlog

import "slices"

// EpochEntry says where a leader epoch's records begin.
type EpochEntry struct {
	Epoch int32
	Start int64
}

// epochCache is what is known of leader epochs, rising in epoch and start.
type epochCache []EpochEntry

// latest gives the last epoch, -1 without any.
func (c epochCache) latest() int32 {
	if len(c) == 0 {
		return -1
	}
	return c[len(c)-1].Epoch
}

// assign notes that epoch e begins at s (spec/broker.md §10.2) and tells whether
// that was news.
func (c *epochCache) assign(e int32, s int64) bool {
	if e < 0 {
		return false
	}
	n := len(*c)
	if n > 0 && (*c)[n-1].Epoch == e && s >= (*c)[n-1].Start {
		return false
	}
	for n > 0 && ((*c)[n-1].Epoch >= e || (*c)[n-1].Start >= s) {
		n--
	}
	*c = append((*c)[:n], EpochEntry{e, s})
	return true
}

// endOffset gives the largest epoch that is not above e, and where it ended, in
// a log that ends at end (§10.3); -1, -1: undefined.
func (c epochCache) endOffset(e int32, end int64) (int32, int64) {
	if e < 0 {
		return -1, -1
	}
	if e == c.latest() {
		return e, end
	}
	i, _ := slices.BinarySearchFunc(c, e, func(x EpochEntry, e int32) int {
		if x.Epoch > e {
			return 1
		}
		return -1
	})
	switch {
	case i == len(c):
		return -1, -1
	case i == 0:
		return e, c[0].Start
	}
	return c[i-1].Epoch, c[i].Start
}

// at gives the epoch of the record at offset o, -1 where it is not known.
func (c epochCache) at(o int64) int32 {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].Start <= o {
			return c[i].Epoch
		}
	}
	return -1
}

// cutEnd drops the entries that start at x or above (§10.4).
func (c *epochCache) cutEnd(x int64) bool {
	n := len(*c)
	for n > 0 && (*c)[n-1].Start >= x {
		n--
	}
	cut := n < len(*c)
	*c = (*c)[:n]
	return cut
}

// cutStart drops the entries that start at x or below, and lets the last of them
// start at x (§10.4).
func (c *epochCache) cutStart(x int64) bool {
	n := 0
	for n < len(*c) && (*c)[n].Start <= x {
		n++
	}
	if n == 0 || n == 1 && (*c)[0].Start == x {
		return false
	}
	*c = append(epochCache{{(*c)[n-1].Epoch, x}}, (*c)[n:]...)
	return true
}
