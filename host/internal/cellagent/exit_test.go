package cellagent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/cell"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func TestExitStatusIsTheWorkloadsOwn(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		for _, terminal := range []bool{false, true} {
			for _, code := range []int32{0, 1, 126, 127, 255} {
				id := fmt.Sprintf("code-%d-%v", code, terminal)
				s := a.sh(id, fmt.Sprintf("exit %d", code))
				if terminal {
					s.Terminal = &cellv1.TerminalSize{}
				}
				start(t, c, s)
				if e := event(t, c, exited); e.GetSessionId() != id || e.GetCode() != code || e.GetSignal() != 0 || e.GetOom() {
					t.Errorf("exit %d: %v", code, e)
				}
			}
		}
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
			start(t, c, a.sh(sig.String(), fmt.Sprintf("kill -%d $$; sleep 1000", sig)))
			if e := event(t, c, exited); e.GetSignal() != int32(sig) {
				t.Errorf("signal %d: %v", sig, e)
			}
		}
	})
}

func TestSessionEndsWithItsOwnProcess(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		// A child holds the output open, another one has detached itself.
		start(t, c, a.sh("s", "sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo out; exit 3"))
		if o := readAll(t, c, "s"); string(o.stdout) != "out\n" {
			t.Errorf("output %q", o.stdout)
		}
		if e := event(t, c, exited); e.GetCode() != 3 {
			t.Errorf("exited %v", e)
		}
		if left := a.survivors(); len(left) > 0 {
			t.Errorf("alive after the session: %v", left)
		}
	})
}

func TestExitIsToldWithAFullBufferAndNoHost(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.sh("s", "head -c 70000 /dev/zero; exit 5")
	s.OutputLimit = 64 << 10
	start(t, c, s)
	_ = c.Close()
	var st *cellv1.SessionState
	eventually(t, "the exit", func() bool {
		h, err := a.redialHello()
		if err != nil {
			return false
		}
		st = h.GetSessions()[0]
		return st.GetExited() != nil
	})
	if st.GetExited().GetCode() != 5 || st.GetNext() != 70000 || st.GetBase() != 0 {
		t.Errorf("session %v", st)
	}
}

func TestStartRefusals(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	plainFile := filepath.Join(openTempDir(t), "plain")
	if err := os.WriteFile(plainFile, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*cellv1.Start)
		want   error
		text   string
	}{
		"no session id":    {func(s *cellv1.Start) { s.SessionId = "" }, cell.ErrInvalid, "session id"},
		"no program":       {func(s *cellv1.Start) { s.Argv = nil }, cell.ErrInvalid, "program"},
		"on_full not set":  {func(s *cellv1.Start) { s.OnFull = 0 }, cell.ErrInvalid, "on_full"},
		"NUL in argv":      {func(s *cellv1.Start) { s.Argv = []string{"a\x00b"} }, cell.ErrInvalid, "NUL"},
		"env without name": {func(s *cellv1.Start) { s.Env = []string{"=x"} }, cell.ErrInvalid, "NAME=VALUE"},
		"unknown program":  {func(s *cellv1.Start) { s.Argv = []string{"no-such-program"} }, cell.ErrStartFailed, "no-such-program"},
		"missing file":     {func(s *cellv1.Start) { s.Argv = []string{"/no/such"} }, cell.ErrStartFailed, "no such file"},
		"not executable":   {func(s *cellv1.Start) { s.Argv = []string{plainFile} }, cell.ErrStartFailed, "permission denied"},
		"cwd is a file":    {func(s *cellv1.Start) { s.Cwd = "/etc/passwd/x" }, cell.ErrStartFailed, "not a directory"},
		"relative cwd":     {func(s *cellv1.Start) { s.Cwd = "x" }, cell.ErrStartFailed, "absolute"},
		"bad file": {func(s *cellv1.Start) { s.Files = []*cellv1.File{{Path: "/a/../b"}} },
			cell.ErrStartFailed, "clean absolute"},
	} {
		s := a.sh("s", "exit 0")
		tc.change(s)
		_, err := c.Start(long(t), s)
		wantErr(t, err, tc.want)
		if err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: error %q does not say %q", name, err, tc.text)
		}
	}
	// A start that failed leaves nothing: the same id starts.
	start(t, c, a.sh("s", "exit 0"))
	if e := event(t, c, exited); e.GetCode() != 0 {
		t.Error(e)
	}
}

func TestStartIsIdempotent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	file := filepath.Join(openTempDir(t), "starts")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(file, 0o666)
	s := a.sh("s", "echo x >> "+file+"; read wait")
	results := make(chan int32, 20)
	for range 20 {
		go func() {
			r, err := c.Start(long(t), s)
			if err != nil {
				t.Error(err)
			}
			results <- r.GetPid()
		}()
	}
	pid := <-results
	for range 19 {
		if p := <-results; p != pid {
			t.Errorf("pid %d and %d", pid, p)
		}
	}
	other := a.sh("s", "exit 0")
	if err := c.Bind(long(t), "mission", 2); err != nil {
		t.Fatal(err)
	}
	other.Generation = 2
	_, err := c.Start(long(t), other)
	wantErr(t, err, cell.ErrConflict)
	if err := c.CloseInput(long(t), "s", 2); err != nil {
		t.Fatal(err)
	}
	event(t, c, exited)
	other.Generation = 2
	if err := c.AckExit(long(t), "s"); err != nil {
		t.Fatal(err)
	}
	// A delayed Start of a session that is done and forgotten runs nothing.
	_, err = c.Start(long(t), s)
	wantErr(t, err, cell.ErrStale)
	if b, _ := os.ReadFile(file); string(b) != "x\n" {
		t.Errorf("started %d times", strings.Count(string(b), "x"))
	}
	// Under a higher generation the id may be used again.
	start(t, c, other)
	event(t, c, exited)
	if err := c.AckExit(long(t), "s"); err != nil {
		t.Fatal(err)
	}
	_, err = c.Start(long(t), other)
	wantErr(t, err, cell.ErrClosed)
}

func TestWorkloadsEnvironmentAndPrivileges(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		for _, own := range []bool{false, true} {
			a := startAgent(t, m)
			c := a.dial(t)
			s := a.sh("s", `env; echo uid $(id -u) gid $(id -g) groups $(id -G); grep -E '^(Cap|NoNewPrivs|Sig(Ign|Blk))' /proc/self/status; pwd; umask; ls -l /proc/self/fd | wc -l`)
			s.Env = []string{a.tag, "AIRLOCK_SESSION=forged"}
			s.Cwd = filepath.Join("/tmp", fmt.Sprintf("airlock-cwd-%d-%s-%v", os.Getpid(), m, own), "deep")
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(s.Cwd)) })
			if own {
				s.Uid = 0
			}
			start(t, c, s)
			out := string(readAll(t, c, "s").stdout)
			for _, want := range []string{
				"AIRLOCK_SESSION=s\n", "AIRLOCK_ASK_SOCKET=/", "AIRLOCK_CELL=/", "HOME=/", "LANG=C.UTF-8\n", "TERM=dumb\n",
				"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
				"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "SigIgn:\t0000000000000000", s.Cwd + "\n",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("own uid %v: no %q in\n%s", own, want, out)
				}
			}
			if os.Geteuid() == 0 {
				if !strings.Contains(out, "CapBnd:\t0000000000000000") {
					t.Errorf("bounding set is left:\n%s", out)
				}
				if id := fmt.Sprintf("uid %[1]d gid %[1]d groups %[1]d\n", s.Uid); !own && !strings.Contains(out, id) {
					t.Errorf("no %q in\n%s", id, out)
				}
			}
			if strings.Contains(out, "SECRET_OF_THE_AGENT") || strings.Contains(out, "forged") || strings.Contains(out, stageVar) {
				t.Errorf("the environment holds what it must not:\n%s", out)
			}
			event(t, c, exited)
		}
	})
}

func TestWorkloadCannotReachTheAgent(t *testing.T) {
	needRoot(t, "a uid of the workload's own")
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		pid := 1
		if m == plain {
			pid = a.cmd.Process.Pid
		}
		for _, uid := range []uint32{a.uid, 0} {
			id := fmt.Sprint("s", uid)
			s := a.sh(id, fmt.Sprintf(`for f in environ maps mem fd/3 exe; do cat /proc/%[1]d/$f >/dev/null 2>&1 && echo reached $f; done
				ls %[2]s >/dev/null 2>&1 && echo reached the link directory
				kill -STOP %[1]d 2>/dev/null && echo signalled; echo done`, pid, a.dir))
			s.Uid = uid
			if uid == 0 { // one uid: its memory stays out of reach, the rest is "link: unprotected"
				s.Argv[2] = strings.ReplaceAll(strings.Split(s.Argv[2], "ls ")[0], "exe;", ";") + "\necho done"
			}
			start(t, c, s)
			if o := readAll(t, c, id); string(o.stdout) != "done\n" {
				t.Errorf("uid %d: %s", uid, o.stdout)
			}
		}
	})
}

func TestFilesArePlaced(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	dir := openTempDir(t)
	s := a.session("s", "/bin/cat", filepath.Join(dir, "x", "y"))
	s.Files = []*cellv1.File{{Path: filepath.Join(dir, "x", "y"), Content: []byte("content"), Mode: 0o640, Uid: a.uid, Gid: a.uid}}
	start(t, c, s)
	if o := readAll(t, c, "s"); string(o.all) != "content" {
		t.Errorf("read %q", o.all)
	}
	fi, err := os.Stat(filepath.Join(dir, "x", "y"))
	if err != nil || fi.Mode().Perm() != 0o640 || fi.Sys().(*syscall.Stat_t).Uid != a.uid {
		t.Errorf("%v %v", fi, err)
	}
	if err := c.PutFiles(long(t), []*cellv1.File{{Path: filepath.Join(dir, "x", "y"), Content: []byte("new"), Mode: 0o600}}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "x", "y")); string(b) != "new" {
		t.Errorf("content %q", b)
	}
	if os.Geteuid() == 0 { // a link that the workload has planted
		if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(filepath.Join(dir, "link"), int(a.uid), int(a.uid)); err != nil {
			t.Fatal(err)
		}
		err := c.PutFiles(long(t), []*cellv1.File{{Path: filepath.Join(dir, "link", "airlock-test"), Content: []byte("x")}})
		wantErr(t, err, cell.ErrInvalid)
	}
}

func TestSessionsLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	began := time.Now()
	const n = 300
	for i := range n {
		id := fmt.Sprint("s", i)
		start(t, c, a.session(id, "/bin/true"))
		event(t, c, exited)
		if err := c.AckExit(long(t), id); err != nil {
			t.Fatal(err)
		}
	}
	st, err := c.Stats(long(t))
	if err != nil || st.GetProcesses() != 0 {
		t.Errorf("%v %v", st, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
	if err != nil || len(fds) > 40 {
		t.Errorf("%d descriptors are open: %v", len(fds), err)
	}
	t.Logf("%d sessions in %v", n, time.Since(began))
}

func TestOutOfMemoryIsTold(t *testing.T) {
	needRoot(t, "a memory cgroup")
	t.Parallel()
	dir := fmt.Sprintf("/sys/fs/cgroup/memory/airlock-test-%d", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("no cgroup v1 memory controller: ", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	a := startAgent(t, plain, "--cgroup", dir)
	for file, value := range map[string]int{"memory.limit_in_bytes": 400 << 20, "cgroup.procs": a.cmd.Process.Pid} {
		if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, value), 0); err != nil {
			t.Fatal(err)
		}
	}
	c := a.dial(t)
	start(t, c, a.sh("s", "exec tail /dev/zero"))
	if e := event(t, c, exited); !e.GetOom() || e.GetSignal() != 9 {
		t.Errorf("exited %v", e)
	}
	start(t, c, a.sh("killed", "kill -9 $$"))
	if e := event(t, c, exited); e.GetOom() || e.GetSignal() != 9 {
		t.Errorf("exited %v", e)
	}
}

// A laptop's user has one uid, and no right to change it.
func TestAgentOfAnOrdinaryUser(t *testing.T) {
	needRoot(t, "becoming another user")
	t.Parallel()
	a := startAgentAs(t, 62000)
	c := a.dial(t)
	start(t, c, a.sh("s", fmt.Sprintf(`id -u; for f in environ maps mem fd/3 cwd/.; do cat /proc/%[1]d/$f >/dev/null 2>&1 && echo reached $f; ls /proc/%[1]d/$f/ >/dev/null 2>&1 && echo listed $f; done
		grep -E '^(CapEff|NoNewPrivs)' /proc/self/status`, a.cmd.Process.Pid)))
	if o := readAll(t, c, "s"); string(o.stdout) != "62000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n" {
		t.Errorf("%s", o.stdout)
	}
	other := a.sh("other uid", "exit 0")
	other.Uid = 62001
	_, err := c.Start(long(t), other)
	wantErr(t, err, cell.ErrStartFailed)
	w := a.watched("w", `printf 'Sure? '; read x`)
	start(t, c, w)
	if w := event(t, c, waiting); w.GetScreenLine() != "Sure? " {
		t.Errorf("waiting %v", w)
	}
	if err := c.Kill(long(t), "w", 0, 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fork loop", "double fork", "setsid chain"} {
		killEscapee(t, a, name, 0)
	}
}
