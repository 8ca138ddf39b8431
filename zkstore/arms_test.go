package zkstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// TestArms tells the stories of one watch: what of them can race with what.
func TestArms(t *testing.T) {
	k := armKey{dataTable, "/a"}
	was, is := look{true, 1, 1, 1}, look{true, 1, 2, 1}
	changed := []zkpaths.NoticeType{zkpaths.NodeDataChanged}
	cases := []struct {
		name  string
		story func(a *arms) []zkpaths.NoticeType // notices of our own making
		want  []zkpaths.NoticeType
		armed bool // is it so at the end, so that a reader need not arm it
	}{
		{"armed", func(a *arms) []zkpaths.NoticeType { return a.commit(a.begin(k, onMain), was) }, nil, true},
		{"the notice comes before the reader has its answer", func(a *arms) []zkpaths.NoticeType {
			n := a.begin(k, onMain)
			a.fire(zkpaths.NodeDataChanged, "/a", onMain)
			return a.commit(n, was)
		}, nil, false},
		{"the read armed nothing", func(a *arms) []zkpaths.NoticeType { a.abort(a.begin(k, onMain)); return nil }, nil, false},
		{"a notice of the other table", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			a.fire(zkpaths.NodeChildrenChanged, "/a", onMain)
			return nil
		}, nil, true},
		{"resync, unchanged", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			return a.settle(a.suspend()[0], was, true)
		}, nil, true},
		{"resync, changed", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			return a.settle(a.suspend()[0], is, true)
		}, changed, true},
		{"resync, made again, and the library's notice says less", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			n := a.suspend()[0]
			if a.fire(zkpaths.NodeDataChanged, "/a", onMain) {
				return nil
			}
			return a.settle(n, look{true, 5, 5, 5}, true)
		}, []zkpaths.NoticeType{zkpaths.NodeDeleted, zkpaths.NodeCreated}, false},
		{"resync, and a notice right behind its look", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			n := a.suspend()[0]
			a.fire(zkpaths.NodeDataChanged, "/a", onMain)
			return a.settle(n, was, true)
		}, changed, false},
		{"the reader's answer came before the cut, its turn after the resync", func(a *arms) []zkpaths.NoticeType {
			n := a.begin(k, onMain)
			a.settle(a.suspend()[0], is, true)
			return a.commit(n, was)
		}, changed, true},
		{"the reader's answer came before the cut, its turn during the resync", func(a *arms) []zkpaths.NoticeType {
			n := a.begin(k, onMain)
			w := a.suspend()[0]
			return append(a.commit(n, was), a.settle(w, is, true)...)
		}, changed, true},
		{"cut again during the resync: the base stays", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onMain), was)
			a.suspend()
			return a.settle(a.suspend()[0], is, true)
		}, changed, true},
		{"the bulk connection's are left alone", func(a *arms) []zkpaths.NoticeType {
			a.commit(a.begin(k, onBulk), was)
			if len(a.suspend()) > 0 || !a.anyBulk() || !a.isAway("/a") {
				return changed
			}
			return nil
		}, nil, true},
	}
	for _, c := range cases {
		a := newArms()
		got := c.story(a)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if isArmed := a.begin(k, onMain) == nil; isArmed != c.armed {
			t.Errorf("%s: armed %t", c.name, isArmed)
		}
	}
}
