package zkserver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// version is what the server calls itself. The date has the form that both
// people's scripts and go-zookeeper's parser read.
const version = "3.9.5-zkcontroller, built on 01/02/2026 00:00 UTC"

// stats count since the start or the last srst. Latencies are in milliseconds,
// of the batches in which requests were carried out.
type stats struct {
	received, sent                   int64
	rejected                         int64
	minLatency, maxLatency, totalLat int64
	timed                            int64
}

// connStats are one connection's, for cons.
type connStats struct {
	received, sent                   int64
	since                            time.Time
	session                          int64
	op, cxid                         int32
	last                             int64 // ms since 1970 of the newest batch
	minLatency, maxLatency, totalLat int64
	lastLatency, timed               int64
}

// latency notes how long a batch took from its arrival.
func (c *conn) latency(arrived time.Time) {
	now := c.s.o.Clock.Now()
	ms := now.Sub(arrived).Milliseconds()
	st, i := &c.s.stats, &c.info
	if st.timed == 0 || ms < st.minLatency {
		st.minLatency = ms
	}
	st.maxLatency = max(st.maxLatency, ms)
	st.totalLat += ms
	st.timed++
	if i.timed == 0 || ms < i.minLatency {
		i.minLatency = ms
	}
	i.maxLatency = max(i.maxLatency, ms)
	i.totalLat += ms
	i.lastLatency, i.last = ms, now.UnixMilli()
	i.timed++
}

func average(total, n int64) float64 {
	if n == 0 {
		return 0
	}
	return float64(total) / float64(n)
}

// isFourLetterWord tells whether a connection's first bytes are one of
// ZooKeeper's words. Others are taken for the length of a frame.
func isFourLetterWord(w string) bool {
	switch w {
	case "conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "lsnp", "mntr", "orst", "ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs":
		return true
	}
	return false
}

// fourLetter answers a four-letter word (spec/zookeeper.md §4.12).
func (c *conn) fourLetter(word string) {
	s := c.s
	text := ""
	if !s.o.mayAsk(word) {
		text = word + " is not executed because it is not in the whitelist."
	} else if word == "envi" {
		text = envi() // may have to ask a name server
	} else if answer := s.words()[word]; answer != nil {
		s.mu.Lock()
		for s.stands() && !c.dead { // who is told of a server that is ready may open a session
			s.resumed.Wait()
		}
		text = answer()
		s.mu.Unlock()
	}
	c.nc.SetWriteDeadline(time.Now().Add(handshakeTime)) // an error shows at the write
	if _, err := c.nc.Write([]byte(text)); err != nil {
		c.gone(err)
	}
}

// words are those that a standalone server has an answer to; the rest are
// answered by nothing.
func (s *Server) words() map[string]func() string {
	return map[string]func() string{
		"ruok": func() string { return "imok" },
		"isro": func() string { return "rw" },
		"srvr": s.srvr,
		"stat": s.stat,
		"cons": func() string { return s.listConns(true) + "\n" },
		"conf": s.conf,
		"dump": s.dump,
		"mntr": s.mntr,
		"wchs": s.wchs,
		"wchp": s.wchp,
		"wchc": s.wchc,
		"dirs": s.dirs,
		"gtmk": func() string { return "0" },
		"srst": func() string {
			s.stats = stats{rejected: s.stats.rejected}
			return "Server stats reset.\n"
		},
		"crst": func() string {
			for _, c := range s.conns {
				c.info = connStats{since: c.info.since, session: c.info.session, op: c.info.op, cxid: c.info.cxid, last: c.info.last}
			}
			return "Connection stats reset.\n"
		},
	}
}

func (s *Server) versionLine() string { return "Zookeeper version: " + version + "\n" }

func (s *Server) srvr() string { return s.versionLine() + s.srvrRest() }

func (s *Server) srvrRest() string {
	st := &s.stats
	return fmt.Sprintf("Latency min/avg/max: %d/%.4f/%d\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: 0x%x\nMode: standalone\nNode count: %d\n",
		st.minLatency, average(st.totalLat, st.timed), st.maxLatency, st.received, st.sent, len(s.conns), s.keep.pending(), s.tree.Zxid(), s.nodeCount())
}

// nodeCount is Apache's, which counts the root twice.
func (s *Server) nodeCount() int { return s.tree.Len() + 1 }

func (s *Server) stat() string {
	return s.versionLine() + "Clients:\n" + s.listConns(false) + "\n" + s.srvrRest()
}

// sortedConns are the open connections in order of arrival.
func (s *Server) sortedConns() []*conn {
	all := make([]*conn, 0, len(s.conns))
	for _, id := range slices.Sorted(maps.Keys(s.conns)) {
		all = append(all, s.conns[id])
	}
	return all
}

// listConns gives a line for each connection; full is the form of cons.
func (s *Server) listConns(full bool) string {
	var b strings.Builder
	for _, c := range s.sortedConns() {
		i := &c.info
		ops := 0
		if c.sess != nil {
			ops = 1
		}
		fmt.Fprintf(&b, " /%s[%d](queued=0,recved=%d,sent=%d", c.nc.RemoteAddr(), ops, i.received, i.sent)
		if full && c.sess != nil {
			fmt.Fprintf(&b, ",sid=%s,lop=%s,est=%d,to=%d,lcxid=0x%x,lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%.0f,maxlat=%d",
				hexID(c.sess.id), opName(i.op), i.since.UnixMilli(), c.sess.timeout.Milliseconds(), uint32(i.cxid), uint64(s.tree.Zxid()),
				i.last, i.lastLatency, max(0, i.minLatency), average(i.totalLat, i.timed), i.maxLatency)
		}
		b.WriteString(")\n")
	}
	return b.String()
}

// opName is Apache's short name of an op.
func opName(op int32) string {
	names := map[int32]string{
		zkwire.OpCreate: "CREA", zkwire.OpDelete: "DELE", zkwire.OpExists: "EXIS", zkwire.OpGetData: "GETD", zkwire.OpSetData: "SETD",
		zkwire.OpGetACL: "GETA", zkwire.OpSetACL: "SETA", zkwire.OpGetChildren: "GETC", zkwire.OpSync: "SYNC", zkwire.OpPing: "PING",
		zkwire.OpGetChildren2: "GETC", zkwire.OpCheck: "CHEC", zkwire.OpMulti: "MULT", zkwire.OpCreate2: "CREA", zkwire.OpReconfig: "RECO",
		zkwire.OpCheckWatches: "CHEW", zkwire.OpRemoveWatches: "REMW", zkwire.OpCreateContainer: "CREC", zkwire.OpDeleteContainer: "DELC",
		zkwire.OpCreateTTL: "CRET", zkwire.OpMultiRead: "MULR", zkwire.OpAuth: "SETA", zkwire.OpSetWatches: "SETW", zkwire.OpSASL: "SASL",
		zkwire.OpGetEphemerals: "GETE", zkwire.OpGetAllChildrenNumber: "GETA", zkwire.OpSetWatches2: "SETW", zkwire.OpAddWatch: "ADDW",
		zkwire.OpWhoAmI: "WHOA", zkwire.OpCloseSession: "CLOS",
	}
	if n := names[op]; n != "" {
		return n
	}
	return "NA"
}

func (s *Server) conf() string {
	o := &s.o
	logDir := o.LogDir
	if logDir == "" {
		logDir = o.DataDir
	}
	return fmt.Sprintf("clientPort=%d\nsecureClientPort=%d\ndataDir=%s\ndataDirSize=%d\ndataLogDir=%s\ndataLogSize=%d\ntickTime=%d\nmaxClientCnxns=%d\n"+
		"minSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=0\n",
		port(o.ClientPort), port(o.SecureClientPort), versionDir(o.DataDir), dirSize(o.DataDir), versionDir(logDir), dirSize(logDir), o.TickTime.Milliseconds(), o.MaxClientCnxns,
		o.MinSessionTimeout.Milliseconds(), o.MaxSessionTimeout.Milliseconds())
}

// port is how Apache shows a port: -1 is none.
func port(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// envi tells of the process. What it cannot find out is empty.
func envi() string {
	host := hostName()
	dir, _ := os.Getwd()
	user := os.Getenv("USER")
	home, _ := os.UserHomeDir()
	var b strings.Builder
	b.WriteString("Environment:\n")
	for _, kv := range [][2]string{
		{"zookeeper.version", version}, {"host.name", host}, {"java.version", runtime.Version()}, {"java.vendor", "The Go Authors"},
		{"os.name", runtime.GOOS}, {"os.arch", runtime.GOARCH}, {"user.name", user}, {"user.home", home}, {"user.dir", dir},
	} {
		fmt.Fprintf(&b, "%s=%s\n", kv[0], kv[1])
	}
	return b.String()
}

// hostName is the canonical name of this host, as Java would find it.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "<NA>"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil || len(addrs) == 0 {
		return "<NA>"
	}
	names, err := net.DefaultResolver.LookupAddr(ctx, addrs[0])
	if err != nil || len(names) == 0 {
		return addrs[0]
	}
	return strings.TrimSuffix(names[0], ".")
}

// dump lists sessions by the tick at which they end, ephemerals and connections.
func (s *Server) dump() string {
	var b strings.Builder
	sets := map[int64][]int64{}
	for _, sess := range s.sessions {
		sets[sess.deadline] = append(sets[sess.deadline], sess.id)
	}
	fmt.Fprintf(&b, "SessionTracker dump:\nSession Sets (%d)/(%d):\n", len(sets), len(s.sessions))
	for _, tick := range slices.Sorted(maps.Keys(sets)) {
		ids := sets[tick]
		slices.Sort(ids)
		at := s.began.Add(time.Duration(tick) * s.o.TickTime)
		fmt.Fprintf(&b, "%d expire at %s:\n", len(ids), at.Format("Mon Jan 02 15:04:05 MST 2006"))
		for _, id := range ids {
			fmt.Fprintf(&b, "\t%s\n", hexID(id))
		}
	}
	var owners []int64
	for _, id := range s.tree.Sessions() {
		if len(s.tree.Ephemerals(id)) > 0 {
			owners = append(owners, id)
		}
	}
	fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(owners))
	for _, id := range owners {
		fmt.Fprintf(&b, "%s:\n", hexID(id))
		for _, p := range s.tree.Ephemerals(id) {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	byTimeout := map[time.Duration][]*conn{}
	n := 0
	for _, c := range s.sortedConns() {
		if c.sess != nil {
			byTimeout[c.sess.timeout] = append(byTimeout[c.sess.timeout], c)
			n++
		}
	}
	fmt.Fprintf(&b, "Connections dump:\nConnections Sets (%d)/(%d):\n", len(byTimeout), n)
	for _, timeout := range slices.Sorted(maps.Keys(byTimeout)) {
		cs := byTimeout[timeout]
		fmt.Fprintf(&b, "%d expire at %s:\n", len(cs), s.began.Add(time.Duration(cs[0].sess.deadline)*s.o.TickTime).Format("Mon Jan 02 15:04:05 MST 2006"))
		for _, c := range cs {
			fmt.Fprintf(&b, "\tip: /%s sessionId: %s\n", c.nc.RemoteAddr(), hexID(c.sess.id))
		}
	}
	return b.String()
}

func (s *Server) mntr() string {
	st := &s.stats
	watches, _, _ := s.tree.CountWatches()
	open, limit := openFiles()
	var b strings.Builder
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"version", version}, {"server_state", "standalone"}, {"avg_latency", fmt.Sprintf("%.4f", average(st.totalLat, st.timed))},
		{"max_latency", st.maxLatency}, {"min_latency", st.minLatency}, {"packets_received", st.received}, {"packets_sent", st.sent},
		{"num_alive_connections", len(s.conns)}, {"outstanding_requests", s.keep.pending()}, {"znode_count", s.nodeCount()},
		{"watch_count", watches}, {"ephemerals_count", s.tree.EphemeralCount()}, {"approximate_data_size", s.tree.DataSize()},
		{"global_sessions", len(s.sessions)}, {"local_sessions", 0}, {"open_file_descriptor_count", open}, {"max_file_descriptor_count", limit},
		{"connection_rejected", st.rejected}, {"uptime", s.o.Clock.Now().Sub(s.began).Milliseconds()}, {"last_zxid", s.tree.Zxid()},
	} {
		fmt.Fprintf(&b, "zk_%s\t%v\n", kv.key, kv.value)
	}
	return b.String()
}

// openFiles counts this process's open files and gives their limit; -1 where
// that cannot be told.
func openFiles() (open, limit int) {
	open, limit = -1, -1
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		open = len(fds)
	}
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return open, limit
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			fmt.Sscan(rest, &limit) // stays -1 if it is "unlimited"
		}
	}
	return open, limit
}

// eachWatch visits the watches that wchs, wchp and wchc tell of: as in Apache,
// those on a node's data, and not those on its children alone.
func (s *Server) eachWatch(visit func(path string, who []Watcher)) {
	t := s.tree
	t.WatchedPaths(func(path string, who []Watcher) {
		who = slices.DeleteFunc(slices.Clone(who), func(w Watcher) bool {
			return !t.Watches(w, DataWatch, path) && !t.Watches(w, PersistentWatch, path) && !t.Watches(w, RecursiveWatch, path)
		})
		if len(who) > 0 {
			visit(path, who)
		}
	})
}

func (s *Server) wchs() string {
	watches, paths := 0, 0
	watchers := map[Watcher]struct{}{}
	s.eachWatch(func(_ string, who []Watcher) {
		paths++
		watches += len(who)
		for _, w := range who {
			watchers[w] = struct{}{}
		}
	})
	return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", len(watchers), paths, watches)
}

// sessionOf is the session whose connection a watcher is.
func (s *Server) sessionOf(w Watcher) string {
	if c := s.conns[w]; c != nil && c.sess != nil {
		return hexID(c.sess.id)
	}
	return "0x0"
}

func (s *Server) wchp() string {
	var b strings.Builder
	s.eachWatch(func(path string, who []Watcher) {
		b.WriteString(path + "\n")
		for _, w := range who {
			b.WriteString("\t" + s.sessionOf(w) + "\n")
		}
	})
	return b.String() + "\n"
}

func (s *Server) wchc() string {
	paths := map[Watcher][]string{}
	s.eachWatch(func(path string, who []Watcher) {
		for _, w := range who {
			paths[w] = append(paths[w], path)
		}
	})
	var b strings.Builder
	for _, w := range slices.Sorted(maps.Keys(paths)) {
		b.WriteString(s.sessionOf(w) + "\n")
		for _, p := range paths[w] {
			b.WriteString("\t" + p + "\n")
		}
	}
	return b.String() + "\n"
}

func (s *Server) dirs() string {
	logDir := s.o.LogDir
	if logDir == "" {
		logDir = s.o.DataDir
	}
	return fmt.Sprintf("datadir_size: %d\nlogdir_size: %d\n", dirSize(s.o.DataDir), dirSize(logDir))
}

// versionDir is where a server keeps its files in a directory.
func versionDir(dir string) string {
	if dir == "" {
		return "(in memory)"
	}
	return filepath.Join(dir, "version-2")
}

// dirSize is the size of the files of a directory, 0 in memory.
func dirSize(dir string) int64 {
	size := int64(0)
	if dir == "" {
		return 0
	}
	files, _ := os.ReadDir(versionDir(dir)) // what cannot be read counts nothing
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}
