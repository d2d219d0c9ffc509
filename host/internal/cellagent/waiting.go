package cellagent

import (
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const (
	quietTime = 50 * time.Millisecond // without output before a look is worth it
	maxLook   = time.Second           // between two looks at a terminal that stays quiet
)

// seen tells one blocked read from the next: the same thread of the same
// process reads on, but something was written in between. A new connection
// makes it new too, for the host may not have got the last report.
type seen struct {
	who     procID
	writes  uint64
	offset  uint64
	connect uint64
}

// watchWaiting reports when a process of the terminal's foreground group is
// blocked reading it. It looks only while the terminal is quiet, ever more
// rarely. A read counts when two looks in a row find it: what one look sees of a
// process that has just started is put together from several files of /proc,
// and may never have been true at one time.
func (s *session) watchWaiting() {
	var last, before seen
	for every := quietTime; ; {
		_, offset := s.out.offsets()
		p := s.out.read(offset, nil)
		select {
		case <-s.mainDone:
			return
		case <-p.changed:
			every = quietTime
			if !wait(s.mainDone, quietTime) { // no need to count bytes meanwhile
				continue
			}
			return
		case <-time.After(every):
		}
		every = min(2*every, maxLook)
		now := seen{writes: s.input.written(), connect: s.agent.links.connection()}
		if now.connect == 0 {
			continue
		}
		who, ok := s.blockedReader()
		now.who = who
		line, at := s.out.screen()
		now.offset = at
		if !ok || now == last || at != offset {
			before = seen{}
			continue
		}
		if now != before {
			before, every = now, quietTime
			continue
		}
		last, before = now, seen{}
		s.agent.links.event(&cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Waiting{Waiting: &cellv1.Waiting{
			SessionId: s.id, Since: timestamppb.Now(), ScreenLine: line, Offset: at}}})
	}
}

// screen renders the last line, and says at which offset.
func (b *buffer) screen() (line string, at uint64) {
	b.mu.Lock()
	out := append([]byte(nil), b.tail.buf...)
	at = b.next
	b.mu.Unlock()
	return lastLine(out), at
}

// blockedReader finds a process of the foreground group that is blocked reading
// the terminal.
func (s *session) blockedReader() (procID, bool) {
	fg, ok := s.foreground()
	if !ok {
		return procID{}, false
	}
	var group []proc
	for _, p := range s.candidates(fg) {
		if p.pgrp == fg && (p.state == 'S' || p.state == 'D') {
			group = append(group, p)
		}
	}
	if len(group) == 0 {
		return procID{}, false
	}
	var found procID
	look := func() {
		for _, p := range group {
			if readsTerminal(p.pid, s.tty) {
				found, ok = p.id(), true
				return
			}
		}
		ok = false
	}
	if own := s.uid == 0 || int(s.uid) == os.Geteuid(); own {
		look()
	} else {
		s.agent.forker.asUser(s.uid, s.gid, look)
	}
	return found, ok
}

// candidates are the leader of a group and what hangs below the session's own
// process: for all but detached processes that is the whole group, without a
// walk over all of /proc.
func (s *session) candidates(fg int) []proc {
	var out []proc
	if p, ok := readProc(fg); ok {
		out = append(out, p)
	}
	todo := []int{int(s.pid.Load())}
	for len(todo) > 0 && len(out) < 256 {
		pid := todo[0]
		todo = todo[1:]
		if p, ok := readProc(pid); ok && pid != fg {
			out = append(out, p)
		}
		todo = append(todo, childrenOf(pid)...)
	}
	return out
}

func childrenOf(pid int) []int {
	base := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range tasks {
		b, _ := os.ReadFile(base + "/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}
