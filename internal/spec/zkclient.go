package spec

import (
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// client is one named ZooKeeper session of a case, with what a real client
// library keeps: the watches it believes to have, and the last zxid it saw.
type client struct {
	name      string
	session   int64
	watcher   zkserver.Watcher
	connected bool
	seen      int64
	armed     []clientWatch
}

type clientWatch struct {
	kind string // data, exist, child
	path string
}

// clientNote is an answer or a watch event that a client saw.
type clientNote struct {
	session, reply, watch, path string
	data                        []byte
}

// is tells whether a case's description of an answer or an event fits.
func (n clientNote) is(want map[string]any) bool {
	for k, v := range want {
		var got any
		switch k {
		case "session":
			got = n.session
		case "reply":
			got = n.reply
		case "watch":
			got = n.watch
		case "path":
			got = n.path
		case "data":
			s, ok := v.(string)
			if !ok || !sameNode([]byte(s), n.data) {
				return false
			}
			continue
		default:
			return false
		}
		if got != v {
			return false
		}
	}
	return true
}

func (p *player) client(name string) *client {
	c := p.clients[name]
	if c == nil {
		id, err := parseSession(name)
		if err != nil || len(name) < 4 {
			id = p.w.ZK.NewSession()
		}
		p.w.ZK.OpenSession(id)
		c = &client{name: name, session: id}
		p.clients[name] = c
		p.connect(c)
	}
	return c
}

var noticeNames = map[zkpaths.NoticeType]string{zkpaths.NodeCreated: "NodeCreated", zkpaths.NodeDeleted: "NodeDeleted",
	zkpaths.NodeDataChanged: "NodeDataChanged", zkpaths.NodeChildrenChanged: "NodeChildrenChanged"}

func (p *player) connect(c *client) {
	c.connected = true
	c.watcher = zkserver.Watcher(c.session)
	p.w.ZK.Listen(c.watcher, func(n zkpaths.Notice) { p.notice(c, n) })
}

func (p *player) notice(c *client, n zkpaths.Notice) {
	c.armed = slices.DeleteFunc(c.armed, func(w clientWatch) bool {
		return w.path == n.Path && ((w.kind == "child") == (n.Type == zkpaths.NodeChildrenChanged) || n.Type == zkpaths.NodeDeleted)
	})
	p.w.Add(clientNote{session: c.name, watch: noticeNames[n.Type], path: n.Path})
}

// zkCall is a raw client call.
func zkCall(p *player, s *Step) error {
	c := p.client(s.Session)
	if !c.connected {
		return fmt.Errorf("session %s is not connected", s.Session)
	}
	if s.Op == "multi" {
		return p.zkMulti(c, s)
	}
	note := clientNote{session: c.name, reply: s.Tag}
	who := zkserver.Who{Session: c.session}
	tree := p.w.ZK.Tree
	var code zkserver.Code
	kind, table := "data", zkserver.DataWatch
	switch s.Op {
	case "get":
		note.data, _, code = tree.GetData(who, s.Path)
	case "exists":
		if _, code = tree.Exists(who, s.Path); code == zkserver.NoNode {
			kind = "exist"
		}
	case "children":
		kind, table = "child", zkserver.ChildWatch
		_, _, code = tree.GetChildren(who, s.Path)
	default:
		op, err := zkOp(s)
		if err != nil {
			return err
		}
		code = p.w.ZK.Write(c.session, op).Code
	}
	if s.Watch && (code == zkserver.OK || kind == "exist") {
		tree.Watch(c.watcher, table, s.Path)
		if w := (clientWatch{kind, s.Path}); !slices.Contains(c.armed, w) {
			c.armed = append(c.armed, w)
		}
	}
	c.seen = tree.Zxid()
	p.w.Add(note)
	return wantCode(code, s.RC)
}

func zkOp(s *Step) (zkserver.Op, error) {
	data, err := text(s.Data)
	if err != nil {
		return zkserver.Op{}, err
	}
	op := zkserver.Op{Path: s.Path, Data: data, Version: zkserver.AnyVersion, ACL: zkserver.OpenACL()}
	if s.Version != nil {
		op.Version = *s.Version
	}
	switch s.Op {
	case "create":
	case "create-ephemeral":
		op.Mode = zkserver.Ephemeral
	case "create-sequential":
		op.Mode = zkserver.PersistentSequential
	case "set":
		op.Kind = zkserver.OpSet
	case "delete":
		op.Kind = zkserver.OpDelete
	case "check":
		op.Kind = zkserver.OpCheck
	default:
		return op, fmt.Errorf("unknown op %q", s.Op)
	}
	return op, nil
}

// zkMulti adds the codes of its operations to the results. What a client makes
// of them is the first code below zero other than -2.
func (p *player) zkMulti(c *client, s *Step) error {
	var ops []zkserver.Op
	for i := range s.Ops {
		op, err := zkOp(&s.Ops[i])
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	res := p.w.ZK.Multi(c.session, ops)
	codes := []int32{}
	for _, o := range res.Ops {
		codes = append(codes, int32(o.Code))
	}
	p.results = append(p.results, map[string]any{"rc": res.Code().String(), "ops": codes})
	c.seen = p.w.ZK.Tree.Zxid()
	p.w.Add(clientNote{session: c.name, reply: s.Tag})
	if s.RC == "" {
		return nil
	}
	return wantCode(res.Code(), s.RC)
}

func zkDisconnect(p *player, s *Step) error {
	c := p.client(s.Session)
	c.connected = false
	p.w.ZK.Listen(c.watcher, nil)
	return nil
}

// zkReconnect resumes the session and arms its watches again (setWatches).
func zkReconnect(p *player, s *Step) error {
	if p.reconnectBroker(s.Session) {
		return nil
	}
	c := p.client(s.Session)
	if !p.w.ZK.Tree.Alive(c.session) {
		return fmt.Errorf("session %s has expired", s.Session)
	}
	p.connect(c)
	lists := map[string][]string{}
	for _, w := range c.armed {
		lists[w.kind] = append(lists[w.kind], w.path)
	}
	missed := p.w.ZK.Tree.Rearm(c.watcher, c.seen, lists["data"], lists["exist"], lists["child"], nil, nil)
	for _, f := range missed {
		p.notice(c, zkpaths.Notice{Type: zkpaths.NoticeType(f.Type), Path: f.Path})
	}
	c.seen = p.w.ZK.Tree.Zxid()
	return nil
}

func zkExpire(p *player, s *Step) error {
	c := p.client(s.Session)
	c.connected = false
	p.w.ZK.EndSession(c.session)
	return nil
}

func zkConnect(p *player, s *Step) error {
	if c := p.clients[s.Session]; c != nil && !p.w.ZK.Tree.Alive(c.session) {
		delete(p.clients, s.Session)
	}
	p.connect(p.client(s.Session))
	return nil
}

// zkFault disturbs an operation of the controllers.
func zkFault(p *player, s *Step) error {
	codes := map[string]zkpaths.Code{"NONODE": zkpaths.NoNode, "NODEEXISTS": zkpaths.NodeExists, "BADVERSION": zkpaths.BadVersion,
		"NOTEMPTY": zkpaths.NotEmpty, "NOAUTH": zkpaths.NoAuth}
	f := sim.Fault{Op: s.Op, Path: s.Path, Times: s.Times, Code: zkpaths.Failed}
	if c, ok := codes[s.RC]; ok {
		f.Code = c
	} else if s.LoseAnswer || s.RC == "CONNECTIONLOSS" {
		f.Effect = sim.LoseAnswer
	} else if s.RC == "SESSIONEXPIRED" {
		f.Effect = sim.Expire
	}
	p.everyStore(func(st *sim.Store) { st.Inject(f) })
	return nil
}

func (p *player) seenEvents() []watched {
	var out []watched
	for _, n := range p.w.Notes {
		if o, ok := n.(sim.Other); ok {
			if c, ok := o.Value.(clientNote); ok && c.watch != "" {
				out = append(out, watched{c.session, c.watch, c.path})
			}
		}
	}
	return out
}

func (p *player) expectWatches(e *Expect) {
	got := p.seenEvents()
	if e.Watches != nil {
		want := slices.Clone(e.Watches)
		have := slices.Clone(got)
		if e.Unordered {
			order := func(a, b watched) int {
				return slices.Compare([]string{a.Session, a.Path, a.Type}, []string{b.Session, b.Path, b.Type})
			}
			slices.SortFunc(want, order)
			slices.SortFunc(have, order)
		}
		if !slices.Equal(want, have) {
			p.fail("watches: expected %v, got %v", e.Watches, got)
		}
	}
	for _, w := range e.NotFired {
		for _, g := range got {
			if g.Session == w.Session && g.Path == w.Path && (w.Type == "" || w.Type == g.Type) {
				p.fail("fired, but should not have: %v", g)
			}
		}
	}
}
