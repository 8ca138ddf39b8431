package zkserver

import (
	"slices"
	"strings"
)

// Cursor goes over a tree in pieces, for a snapshot that does not stop the
// world.
type Cursor struct {
	t     *Tree
	begun bool
	calls int
	stack []frame
}

// frame is a node whose children are being visited. Numbers of nodes are good
// within one call of Next alone; over the calls the frame goes by names.
type frame struct {
	path string
	last string // the newest child that was visited
	kids []uint32
	next int
	call int // when kids was asked for
}

// Cursor begins at the root.
func (t *Tree) Cursor() *Cursor { return &Cursor{t: t} }

// Next gives up to max more nodes, parents before children, and nil at the
// end. The tree may be written to between two calls: then what comes out is
// not the tree of any one moment, but restored, and with the transactions
// since Cursor was called replayed in order (Tree.Replay), it is the present one.
func (c *Cursor) Next(max int) []Saved {
	t := c.t
	c.calls++
	var out []Saved
	if !c.begun {
		c.begun = true
		out = append(out, t.saved("/", t.nodes.at(rootID)))
		c.stack = append(c.stack, frame{})
	}
	for len(out) < max && len(c.stack) > 0 {
		top := &c.stack[len(c.stack)-1]
		c.open(top)
		if top.next == len(top.kids) {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		n := t.nodes.at(top.kids[top.next])
		top.next++
		top.last = t.name(n)
		path := top.path + "/" + top.last
		out = append(out, t.saved(path, n))
		if t.hasChildren(n) {
			c.stack = append(c.stack, frame{path: path})
		}
	}
	return out
}

// open finds a frame's place again after the tree may have changed.
func (c *Cursor) open(f *frame) {
	if f.call == c.calls {
		return
	}
	t := c.t
	f.call, f.kids, f.next = c.calls, nil, 0
	n := t.node(f.path)
	if n == nil {
		return
	}
	f.kids = t.children(n)
	f.next, _ = slices.BinarySearchFunc(f.kids, f.last, func(id uint32, last string) int {
		return strings.Compare(t.name(t.nodes.at(id)), last)
	})
	if f.next < len(f.kids) && f.last != "" && t.name(t.nodes.at(f.kids[f.next])) == f.last {
		f.next++
	}
}
