package cellagent

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	rest := " S 10 20 30 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2"
	for name, tc := range map[string]struct {
		in string
		ok bool
	}{
		"plain":             {"5 (sh)" + rest, true},
		"blank and bracket": {"5 (a) S 1 (b c)" + rest, true},
		"newline":           {"5 (a\nb)" + rest, true},
		"no name":           {"5 sh" + rest, false},
		"short":             {"5 (sh) S 1 2 3", false},
		"empty":             {"", false},
		"no number":         {"x (sh)" + rest, false},
	} {
		p, ok := parseStat([]byte(tc.in))
		if ok != tc.ok {
			t.Errorf("%s: %v", name, ok)
		}
		if want := (proc{pid: 5, ppid: 10, pgrp: 20, sid: 30, state: 'S', start: 987654}); ok && p != want {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if p, ok := readProc(os.Getpid()); !ok || p.ppid != os.Getppid() || p.start == 0 {
		t.Errorf("own process %+v %v", p, ok)
	}
}

func TestBelowSurvivesARing(t *testing.T) {
	t.Parallel()
	got := below([]proc{{pid: 2, ppid: 1}, {pid: 3, ppid: 2}, {pid: 8, ppid: 9}, {pid: 9, ppid: 8}, {pid: 4, ppid: 3}, {pid: 1, ppid: 4}}, 1)
	if len(got) != 3 || got[0].pid != 2 || got[2].pid != 4 {
		t.Errorf("%v", got)
	}
}

func TestSignalReachesOnlyTheProcessThatWasSeen(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok := readProc(cmd.Process.Pid)
	if !ok {
		t.Fatal("no process")
	}
	other := p
	other.start++ // what had the pid before
	if err := signalProc(other, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if now, ok := readProc(p.pid); !ok || now.dead() {
		t.Error("another process was killed")
	}
	if err := signalProc(p, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := signalProc(p, unix.SIGKILL); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestParsers(t *testing.T) {
	t.Parallel()
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max realtime timeout      4611686018427387903  4611686018427387903  us        \n"
	if m := parseMarker([]byte(limits)); m != markerTop-1 {
		t.Errorf("marker %d", m)
	}
	if m := parseMarker([]byte("Max realtime timeout      unlimited            unlimited            us")); m != 0 {
		t.Errorf("marker %d", m)
	}
	if m := parseMarker(nil); m != 0 {
		t.Errorf("marker %d", m)
	}
	if nr, args, ok := parseSyscall("0 0x3 0x7ffe 0x400 0x0 0x0 0x1 0x7ff 0x7f1\n"); !ok || nr != 0 || args[0] != 3 || args[5] != 1 {
		t.Errorf("%d %v %v", nr, args, ok)
	}
	for _, s := range []string{"running\n", "-1 0x7ff 0x7f1\n", "", "0 zz 0 0 0 0 0 0"} {
		if _, _, ok := parseSyscall(s); ok {
			t.Errorf("%q is no system call", s)
		}
	}
}
