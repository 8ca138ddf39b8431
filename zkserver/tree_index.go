package zkserver

import "hash/maphash"

// pathIndex finds a node by the hash of its path: an open table whose slots
// have the hash in the upper half and the node's number in the lower. The
// paths themselves are nowhere: a candidate is compared name by name, up to
// the root. The seed is random, so that nobody can choose paths that collide;
// nothing else depends on it.
type pathIndex struct {
	seed  maphash.Seed
	slots []uint64 // a power of two
	used  int
}

const fewestSlots = 64

func newPathIndex() pathIndex {
	return pathIndex{seed: maphash.MakeSeed(), slots: make([]uint64, fewestSlots)}
}

func (x *pathIndex) hash(path string) uint32 {
	h := maphash.String(x.seed, path)
	return uint32(h) ^ uint32(h>>32)
}

func (x *pathIndex) insert(h, id uint32) {
	if x.used*4 >= len(x.slots)*3 {
		x.resize(2 * len(x.slots))
	}
	x.used++
	x.place(uint64(h)<<32 | uint64(id))
}

func (x *pathIndex) place(slot uint64) {
	mask := uint32(len(x.slots) - 1)
	i := uint32(slot>>32) & mask
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = slot
}

func (x *pathIndex) resize(size int) {
	old := x.slots
	x.slots = make([]uint64, size)
	for _, s := range old {
		if s != 0 {
			x.place(s)
		}
	}
}

// remove closes the gap, so that no search ends too early.
func (x *pathIndex) remove(h, id uint32) {
	mask := uint32(len(x.slots) - 1)
	gap := h & mask
	for uint32(x.slots[gap]) != id {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; x.slots[i] != 0; i = (i + 1) & mask {
		home := uint32(x.slots[i]>>32) & mask
		if (i-home)&mask >= (i-gap)&mask {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = 0
	x.used--
	if len(x.slots) > fewestSlots && x.used*16 < len(x.slots) {
		x.resize(len(x.slots) / 2)
	}
}

// find gives the number of a node, or 0; "" is another name of the root
// (spec/zookeeper.md §4.5).
func (t *Tree) find(path string) uint32 {
	if path == "" || path == "/" {
		return rootID
	}
	return t.search(t.index.hash(path), path)
}

func (t *Tree) search(h uint32, path string) uint32 {
	if path == "/" {
		return rootID
	}
	slots := t.index.slots
	mask := uint32(len(slots) - 1)
	for i := h & mask; slots[i] != 0; i = (i + 1) & mask {
		if uint32(slots[i]>>32) == h && t.isAt(uint32(slots[i]), path) {
			return uint32(slots[i])
		}
	}
	return 0
}

// isAt tells whether a node has this path.
func (t *Tree) isAt(id uint32, path string) bool {
	for id != rootID {
		n := t.nodes.at(id)
		slash := len(path) - int(n.nameLen) - 1
		if slash < 0 || path[slash] != '/' || path[slash+1:] != t.name(n) {
			return false
		}
		path, id = path[:slash], n.parent
	}
	return path == ""
}

// path of a node.
func (t *Tree) path(id uint32) string {
	if id == rootID {
		return "/"
	}
	length := 0
	for i := id; i != rootID; i = t.nodes.at(i).parent {
		length += 1 + int(t.nodes.at(i).nameLen)
	}
	b := make([]byte, length)
	for i := id; i != rootID; i = t.nodes.at(i).parent {
		name := t.name(t.nodes.at(i))
		length -= copy(b[length-len(name):], name) + 1
		b[length] = '/'
	}
	return string(b)
}
