package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func child(t *testing.T, script string, env ...string) (*exec.Cmd, ID) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func TestAPidIsNotAnIdentity(t *testing.T) {
	t.Parallel()
	_, id := child(t, "sleep 1000")
	if alive, err := Alive(id); err != nil || !alive {
		t.Fatalf("a child that runs: %v, %v", alive, err)
	}
	for name, change := range map[string]func(*ID){
		"other ticks": func(id *ID) { id.StartTicks++ },
		"other boot":  func(id *ID) { id.BootID = "x" },
		"no pid":      func(id *ID) { id.PID = 0 },
		"init":        func(id *ID) { id.PID = 1 },
		"minus one":   func(id *ID) { id.PID = -1 },
	} {
		other := id
		change(&other)
		if _, err := Open(other); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWaitAndExitStatus(t *testing.T) {
	t.Parallel()
	cmd, id := child(t, "read x; exit 7")
	_ = cmd
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	quick := exec.Command("sleep", "1000")
	if err := quick.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quick.Process.Kill(); _ = quick.Wait() }()
	qid, err := Identify(quick.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Open(qid)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for a process that runs: %v", err)
	}
	if q.Exited() {
		t.Error("a process that runs has exited")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.Wait(ctx); err != nil { // its input is /dev/null
		t.Fatal(err)
	}
	if alive, err := Alive(id); err != nil || alive {
		t.Errorf("a zombie is alive: %v, %v", alive, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("exit 7 is no error")
	}
	if ws, ok := h.ExitStatus(); ok && ws.ExitStatus() != 7 {
		t.Errorf("exit status %d", ws.ExitStatus())
	}
	if err := h.Signal(syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a process that is gone: %v", err)
	}
}

func TestDescendantsAndEnvironment(t *testing.T) {
	t.Parallel()
	cmd, _ := child(t, "sh -c 'sleep 1000 & wait' & sleep 1000 & wait", "PROC_TEST_MARK=m1")
	var found []int
	until(t, "three processes below", func() bool {
		var err error
		if found, err = Descendants(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		return len(found) == 3
	})
	marked, err := WithEnv("PROC_TEST_MARK=m1")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(found, cmd.Process.Pid) {
		if !slices.Contains(marked, pid) {
			t.Errorf("pid %d is not found by its environment", pid)
		}
	}
	if near, err := WithEnv("PROC_TEST_MARK=m"); err != nil || len(near) > 0 {
		t.Errorf("a part of an entry finds %v, %v", near, err)
	}
	if Threads(cmd.Process.Pid) != 1 || Resident(cmd.Process.Pid) == 0 {
		t.Errorf("%d threads, %d bytes", Threads(cmd.Process.Pid), Resident(cmd.Process.Pid))
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	cmd, id := child(t, "while :; do /bin/true; done") // a vfork at any moment
	until(t, "everything to stand still", func() bool {
		below, err := Descendants(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		still := true
		for _, pid := range append(below, cmd.Process.Pid) {
			if !Stopped(pid) {
				still = false
				if err := Stop(pid); err != nil {
					t.Fatal(err)
				}
			}
		}
		return still
	})
	if err := Continue(id.PID); err != nil {
		t.Fatal(err)
	}
	below, err := Descendants(id.PID)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range below {
		if err := Continue(pid); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it to run again", func() bool { return !Stopped(id.PID) })
	for _, pid := range []int{0, 1, -1} {
		if Kill(pid) == nil {
			t.Errorf("pid %d can be killed", pid)
		}
	}
}
