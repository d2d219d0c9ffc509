package cellagent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

const (
	defaultOutput = 4 << 20
	minOutput     = 64 << 10
	maxOutput     = 64 << 20
	maxID         = 512 // bytes of a session id
)

// start starts a session, or answers for the one that is there.
func (a *Agent) start(req *cellv1.Start) (*cellv1.Started, error) {
	if err := checkStart(req); err != nil {
		return nil, err
	}
	if err := a.checkGeneration(req.GetGeneration()); err != nil {
		return nil, err
	}
	if err := a.checkLatch(); err != nil {
		return nil, err
	}
	s, mine, err := a.claim(req)
	if err != nil {
		return nil, err
	}
	if mine {
		s.startErr = s.launch(req)
		if s.startErr != nil {
			a.mu.Lock()
			a.forget(s)
			a.mu.Unlock()
		}
		close(s.ready)
	}
	<-s.ready
	return s.started, s.startErr
}

func checkStart(req *cellv1.Start) error {
	invalid := func(why string) error { return refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, "start: "+why) }
	switch {
	case req.GetSessionId() == "" || len(req.GetSessionId()) > maxID:
		return invalid("no session id, or one that is too long")
	case len(req.GetArgv()) == 0 || req.GetArgv()[0] == "":
		return invalid("no program")
	case req.GetOnFull() != cellv1.OnFull_ON_FULL_BLOCK && req.GetOnFull() != cellv1.OnFull_ON_FULL_DROP_OLDEST:
		return invalid("on_full is not set")
	case req.GetUid() == 0 && req.GetGid() != 0:
		return invalid("a gid without a uid")
	}
	for _, l := range [][]string{req.GetArgv(), req.GetEnv(), {req.GetCwd(), req.GetSessionId()}} {
		for _, v := range l {
			if strings.IndexByte(v, 0) >= 0 {
				return invalid("a NUL byte in argv, env, cwd or session_id")
			}
		}
	}
	for _, g := range req.GetGateways() {
		if !validGateway(g.GetName()) {
			return invalid("a gateway's name that cannot be one")
		}
	}
	for _, f := range req.GetForwards() {
		if !validForward(f) {
			return invalid("a forward that is not host:port")
		}
	}
	for _, v := range req.GetEnv() {
		if strings.IndexByte(v, '=') < 1 {
			return invalid("env holds something that is not NAME=VALUE")
		}
	}
	return nil
}

// claim reserves the session's id, or finds who has it.
func (a *Agent) claim(req *cellv1.Start) (s *session, mine bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[req.GetSessionId()]; s != nil {
		if s.generation != req.GetGeneration() {
			return nil, false, refuse(cellv1.ErrorCode_ERROR_CODE_CONFLICT, fmt.Sprintf("the session is there from generation %d", s.generation))
		}
		return s, false, nil
	}
	if t := a.buried(req.GetSessionId()); t != nil && t.generation >= req.GetGeneration() {
		return nil, false, refuse(cellv1.ErrorCode_ERROR_CODE_CLOSED, "the session has ended, and its end was acknowledged")
	}
	for _, other := range a.sessions {
		if other.generation != req.GetGeneration() && other.isStarted() && !other.swept() {
			return nil, false, refuse(cellv1.ErrorCode_ERROR_CODE_CONFLICT,
				fmt.Sprintf("session %s of generation %d still runs", other.id, other.generation))
		}
	}
	if len(a.sessions) >= maxSessions {
		return nil, false, refuse(cellv1.ErrorCode_ERROR_CODE_START_FAILED, fmt.Sprintf("there are %d sessions already", maxSessions))
	}
	limit := req.GetOutputLimit()
	if limit == 0 {
		limit = defaultOutput
	}
	a.serial++
	s = &session{
		agent: a, id: req.GetSessionId(), generation: req.GetGeneration(), uid: req.GetUid(), gid: req.GetGid(),
		marker: markerTop - a.serial, watch: req.GetWatchWaiting() && req.GetTerminal() != nil,
		ready: make(chan struct{}), abandon: make(chan struct{}),
		mainDone: make(chan struct{}),
		out:      newBuffer(min(max(limit, minOutput), maxOutput), req.GetOnFull() == cellv1.OnFull_ON_FULL_DROP_OLDEST),
	}
	a.sessions[s.id] = s
	a.order = append(a.order, s.id)
	return s, true, nil
}

// launch does the work of a start.
func (s *session) launch(req *cellv1.Start) error {
	a := s.agent
	failed := func(err error) error { return refuse(cellv1.ErrorCode_ERROR_CODE_START_FAILED, err.Error()) }
	if err := placeFiles(req.GetFiles()); err != nil {
		return failed(err)
	}
	sp := &spawn{
		argv: req.GetArgv(), terminal: req.GetTerminal() != nil,
		uid: req.GetUid(), gid: req.GetGid(), marker: s.marker,
	}
	var err error
	if s.doors, err = a.openDoors(s, req); err != nil {
		return failed(err)
	}
	opened := false
	defer func() {
		if !opened {
			s.doors.close()
			s.dropScratch()
		}
	}()
	if s.scratch, err = makeScratch(req, sp); err != nil {
		return failed(err)
	}
	found := s.doors.names()
	if s.scratch != "" {
		found = append(found, scratchVar+"="+s.scratch)
	}
	sp.env = a.workloadEnv(req, sp.otherUID(), found)
	if sp.dir, err = workDir(req, sp); err != nil {
		return failed(err)
	}
	if sp.path, err = findProgram(req.GetArgv()[0], sp.env); err != nil {
		return failed(err)
	}
	var pl *plumbing
	if sp.terminal {
		pl, err = openTerminal(req.GetTerminal(), sp)
	} else {
		pl, err = openPipes()
	}
	if err != nil {
		return failed(err)
	}
	sp.files = pl.child
	s.group = a.cgroups.child(fmt.Sprintf("s%d", markerTop-s.marker))
	sp.group, s.oomAt = s.group, a.cgroups.oomKills()
	s.term, s.tty, s.outputs = pl.term, pl.tty, pl.outputs
	if s.watch {
		s.out.tail = &tail{}
	}
	s.input = newInput(s, pl.in)
	if err := s.fork(sp); err != nil {
		pl.close()
		s.input.close()
		if s.group != nil {
			_ = s.group.remove()
		}
		var refused *cell.Error // by the latch
		if errors.As(err, &refused) {
			return err
		}
		return failed(fmt.Errorf("%s: %w", req.GetArgv()[0], err))
	}
	opened = true
	pl.closeChild()
	preferAsVictim(s.pid.Load())
	s.started = &cellv1.Started{Pid: s.pid.Load(), At: timestamppb.Now()}
	s.readers.Add(len(pl.outputs))
	for i, f := range pl.outputs {
		go s.read(f, []cellv1.Stream{cellv1.Stream_STREAM_STDOUT, cellv1.Stream_STREAM_STDERR}[i])
	}
	go s.finish()
	if s.watch {
		go s.watchWaiting()
	}
	return nil
}

// fork starts the program, unless the latch was set in the meantime.
func (s *session) fork(sp *spawn) error {
	a := s.agent
	a.starting.RLock()
	defer a.starting.RUnlock()
	if err := a.checkLatch(); err != nil {
		return err
	}
	if err := a.checkGeneration(s.generation); err != nil {
		return err
	}
	thread := a.bare
	if sp.otherUID() {
		thread = a.forker
	}
	var err error
	thread.do(func() {
		// The child shares the agent's memory until it execs, and with its
		// change of uid the kernel sets that to what fs.suid_dumpable says.
		defer undumpable()
		_, err = a.reaper.start(func() (int, error) {
			pid, err := sp.start()
			s.pid.Store(int32(pid))
			return pid, err
		}, func(ws unix.WaitStatus) {
			s.status = ws
			close(s.mainDone)
		})
	})
	return err
}

// workDir is the session's directory, made for the workload where it is
// missing.
func workDir(req *cellv1.Start, sp *spawn) (string, error) {
	dir := req.GetCwd()
	if dir == "" {
		dir = lookupEnv(sp.env, "HOME")
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			dir = "/"
		}
		return dir, nil
	}
	if !strings.HasPrefix(dir, "/") {
		return "", fmt.Errorf("cwd %q is not absolute", dir)
	}
	if err := makeDirs(dir, sp); err != nil {
		return "", fmt.Errorf("cwd: %w", err)
	}
	return dir, nil
}

// makeDirs makes what is missing of a directory and gives it to the workload.
func makeDirs(dir string, sp *spawn) error {
	var missing []string
	for d := dir; ; d = parentOf(d) {
		fi, err := os.Stat(d)
		if err == nil && !fi.IsDir() {
			return fmt.Errorf("%s is not a directory", d)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if sp.otherUID() {
			if err := os.Lchown(d, int(sp.uid), int(sp.gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// preferAsVictim makes the kernel take the workload rather than its agent when
// the cell is out of memory: without the agent nobody could say what happened.
func preferAsVictim(pid int32) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("300"), 0)
}
