package zkserver

import "slices"

// dir is the children of a node, by number. The first `sorted` places are in
// order of name, what was added since is behind them; a child that left is a
// hole (0). Whoever asks for the list puts it in order first (Tree.children),
// so that a directory that does not change is never sorted twice.
type dir struct {
	order  []uint32
	sorted int
	live   int
}

// tinyDir is the size up to which an emptied directory is kept for the next child.
const tinyDir = 16

// addChild enters a node into its parent's list. A name behind all others, as
// sequence numbers give, leaves the list in order.
func (t *Tree) addChild(p *extra, id uint32, n *node) {
	if p.dir == nil {
		p.dir = &dir{}
	}
	d := p.dir
	n.slot = uint32(len(d.order))
	if d.sorted == len(d.order) && (d.sorted == 0 || d.order[d.sorted-1] != 0 && t.name(t.nodes.at(d.order[d.sorted-1])) < t.name(n)) {
		d.sorted++
	}
	d.order = append(d.order, id)
	d.live++
}

func (t *Tree) dropChild(p *extra, n *node) {
	d := p.dir
	d.order[n.slot] = 0
	d.live--
	last := len(d.order)
	for last > 0 && d.order[last-1] == 0 {
		last--
	}
	d.order, d.sorted = d.order[:last], min(d.sorted, last)
	switch {
	case d.live == 0 && cap(d.order) > tinyDir:
		p.dir = nil
	case len(d.order) > tinyDir && d.live*2 < len(d.order):
		t.closeHoles(d)
	}
}

func (t *Tree) closeHoles(d *dir) {
	first := max(0, slices.Index(d.order, 0)) // what is before stays where it is
	to, sorted := first, min(first, d.sorted)
	for i := first; i < len(d.order); i++ {
		id := d.order[i]
		if id == 0 {
			continue
		}
		if i < d.sorted {
			sorted++
		}
		t.nodes.at(id).slot = uint32(to)
		d.order[to] = id
		to++
	}
	d.order, d.sorted = d.order[:to], sorted
	if cap(d.order) > tinyDir && to*4 < cap(d.order) {
		d.order = slices.Clip(slices.Clone(d.order))
	}
}

// children gives a node's children in order of name, good until the next write.
func (t *Tree) children(n *node) []uint32 {
	if n.extra == 0 || t.extras.at(n.extra).dir == nil {
		return nil
	}
	d := t.extras.at(n.extra).dir
	if d.live < len(d.order) {
		t.closeHoles(d)
	}
	if d.sorted < len(d.order) {
		t.sortNew(d)
	}
	return d.order
}

// sortNew sorts what is behind the sorted part and merges it in from the end.
func (t *Tree) sortNew(d *dir) {
	fresh := slices.Clone(d.order[d.sorted:])
	slices.SortFunc(fresh, t.byName)
	i, to := d.sorted-1, len(d.order)-1
	for j := len(fresh) - 1; j >= 0; to-- {
		if i >= 0 && t.byName(d.order[i], fresh[j]) > 0 {
			d.order[to] = d.order[i]
			i--
		} else {
			d.order[to] = fresh[j]
			j--
		}
		t.nodes.at(d.order[to]).slot = uint32(to)
	}
	d.sorted = len(d.order)
}

func (t *Tree) byName(a, b uint32) int {
	x, y := t.name(t.nodes.at(a)), t.name(t.nodes.at(b))
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
