package zkserver

import (
	"encoding/binary"
	"unsafe"
)

const (
	smallPage  = 4 << 10
	pageSize   = 32 << 10
	ownPage    = pageSize / 4 // a longer entry gets a page of its own
	entryHead  = 8
	waste      = 4        // a fourth of what lives may be dead entries…
	freeOfCare = 64 << 10 // …and this much besides
)

// texts keeps the names and data of all nodes in pages. An entry is
//
//	node number, 4 bytes | length of name and data, 4 bytes | name | data
//
// A page is only ever appended to, and forgotten when nothing in it lives:
// what was handed out from it stays as it was for as long as somebody holds
// it. A node that is set gets a new entry; when the dead ones are too many,
// the pages that have the most are cleared (Tree.compact).
type texts struct {
	pages []page // number 0 is nobody
	free  []uint32
	open  uint32 // the page that is being filled
	size  int64  // bytes of all entries
	live  int64  // bytes of the entries that nodes have
	spare int64  // how many bytes may be dead besides the fourth
}

type page struct {
	buf  []byte
	live int
}

// put writes an entry.
func (x *texts) put(id uint32, name string, data []byte) (pg uint32, off uint16) {
	need := entryHead + len(name) + len(data)
	pg = x.open
	if p := &x.pages[pg]; need > ownPage || cap(p.buf)-len(p.buf) < need {
		pg = x.page(need)
	}
	p := &x.pages[pg]
	off = uint16(len(p.buf))
	b := binary.LittleEndian.AppendUint32(p.buf, id)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(name)+len(data)))
	b = append(b, name...)
	p.buf = append(b, data...)
	p.live += need
	x.live += int64(need)
	x.size += int64(need)
	return pg, off
}

// page gives a page for an entry. Small trees have small pages.
func (x *texts) page(need int) uint32 {
	size := need
	if need <= ownPage {
		size = max(min(int(x.live), pageSize), smallPage, need)
	}
	pg := uint32(len(x.pages))
	if n := len(x.free); n > 0 {
		pg = x.free[n-1]
		x.free = x.free[:n-1]
	} else {
		x.pages = append(x.pages, page{})
	}
	x.pages[pg] = page{buf: make([]byte, 0, size)}
	if need <= ownPage {
		last := x.open
		x.open = pg
		if x.pages[last].live == 0 {
			x.drop(last)
		}
	}
	return pg
}

// length is that of name and data together.
func (x *texts) length(pg uint32, off uint16) int {
	return int(binary.LittleEndian.Uint32(x.pages[pg].buf[int(off)+4:]))
}

// release says that an entry is dead.
func (x *texts) release(pg uint32, off uint16) {
	need := entryHead + x.length(pg, off)
	p := &x.pages[pg]
	p.live -= need
	x.live -= int64(need)
	if p.live == 0 && pg != x.open {
		x.drop(pg)
	}
}

func (x *texts) drop(pg uint32) {
	if pg == 0 {
		return
	}
	x.size -= int64(len(x.pages[pg].buf))
	x.pages[pg] = page{}
	x.free = append(x.free, pg)
}

// worst is the closed page with the most dead bytes, 0 if none has any.
func (x *texts) worst() uint32 {
	worst, most := 0, 0
	for i := range x.pages {
		if dead := len(x.pages[i].buf) - x.pages[i].live; dead > most && i != int(x.open) {
			worst, most = i, dead
		}
	}
	return uint32(worst)
}

// name of a node. It is a view of a page, which never changes.
func (t *Tree) name(n *node) string {
	if n.nameLen == 0 {
		return ""
	}
	return unsafe.String(&t.texts.pages[n.page].buf[int(n.off)+entryHead], int(n.nameLen))
}

// data of a node: a view, too, and nil if it is null.
func (t *Tree) data(n *node) []byte {
	if n.null {
		return nil
	}
	buf := t.texts.pages[n.page].buf
	end := int(n.off) + entryHead + t.texts.length(n.page, n.off)
	return buf[int(n.off)+entryHead+int(n.nameLen) : end : end]
}

func (t *Tree) dataLen(n *node) int {
	return t.texts.length(n.page, n.off) - int(n.nameLen)
}

// write gives a node its name and data; what it had before is the caller's to
// release.
func (t *Tree) write(id uint32, n *node, name string, data []byte) {
	n.page, n.off = t.texts.put(id, name, data)
	n.nameLen, n.null = uint32(len(name)), data == nil
}

// compact clears pages until few enough entries are dead. Nothing may be
// under way that could still be undone.
func (t *Tree) compact() {
	x := &t.texts
	for x.size-x.live > x.live/waste+x.spare {
		pg := x.worst()
		if pg == 0 {
			return // all of it in the open page
		}
		t.clearPage(pg)
	}
}

// clearPage moves the entries that live into the open page. An entry lives if
// its node knows of it.
func (t *Tree) clearPage(pg uint32) {
	buf := t.texts.pages[pg].buf
	for off := 0; off < len(buf); {
		id, length := binary.LittleEndian.Uint32(buf[off:]), int(binary.LittleEndian.Uint32(buf[off+4:]))
		n := t.nodes.at(id)
		if n.page == pg && int(n.off) == off {
			t.write(id, n, t.name(n), t.data(n))
			t.texts.release(pg, uint16(off))
		}
		off += entryHead + length
	}
}
