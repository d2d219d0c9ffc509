package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	if err := live.Print("one \x00\xff\n"); err != nil {
		t.Fatal(err)
	}
	sh := alice(t, h)
	if r := sh.run("mission", "logs", "m1").want(t, 0); r.out != "one \x00\xff\n" {
		t.Errorf("logs = %q", r.out)
	}
	if r := sh.run("mission", "logs", "m1", "--from", "4").want(t, 0); r.out != "\x00\xff\n" {
		t.Errorf("logs = %q", r.out)
	}
	r := sh.run("mission", "logs", "m1", "--from", "4", "--json").want(t, 0)
	if got := r.object(t); got["from"] != 4.0 || got["data"] != "AP8K" {
		t.Errorf("logs --json = %v", got)
	}
	var out, errs buffer
	done := make(chan int, 1)
	go func() {
		done <- sh.start(t.Context(), strings.NewReader(""), &out, &errs, "mission", "logs", "-f", "m1")
	}()
	eventually(t, "the first output", func() bool { return out.String() == "one \x00\xff\n" })
	if err := live.Print("two\n"); err != nil {
		t.Fatal(err)
	}
	if err := h.Engine.End("m1", 0); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 || out.String() != "one \x00\xff\ntwo\n" {
		t.Errorf("follow: %d, %q, %s", code, out.String(), errs.String())
	}
	sh.run("mission", "logs", "none").want(t, ExitNotFound)
}

// seat is somebody at a real terminal.
type seat struct {
	ptmx *os.File
	seen *buffer
	code chan int
}

func sit(t *testing.T, sh *shell, args ...string) *seat {
	t.Helper()
	return sitAt(t, pty.Winsize{Cols: 101, Rows: 33}, sh, args...)
}

func sitAt(t *testing.T, size pty.Winsize, sh *shell, args ...string) *seat {
	t.Helper()
	ptmx, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(ptmx, &size); err != nil {
		t.Fatal(err)
	}
	s := &seat{ptmx, &buffer{}, make(chan int, 1)}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(s.seen, ptmx)
	}()
	go func() {
		s.code <- sh.start(context.Background(), tty, tty, tty, args...)
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = ptmx.Close()
		<-copied
	})
	return s
}

func (s *seat) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.ptmx.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (s *seat) left(t *testing.T) int {
	t.Helper()
	select {
	case code := <-s.code:
		return code
	case <-time.After(time.Minute):
		t.Fatalf("attach does not end; the terminal shows %q", s.seen.String())
		return -1
	}
}

func TestAttachAtATerminal(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	live := h.Engine.Live("m1")
	if err := live.Print("login: "); err != nil {
		t.Fatal(err)
	}
	for name, sh := range map[string]*shell{"tcp": alice(t, h), "socket": {t, nil, h.Socket}} {
		before := live.Typed()
		s := sit(t, sh, "mission", "attach", "m1")
		eventually(t, name+": the output", func() bool { return strings.Contains(s.seen.String(), "login: ") })
		eventually(t, name+": the size", func() bool { return strings.Contains(strings.Join(live.Sizes(), " "), "101x33") })
		s.press(t, "\x03ls\r")
		eventually(t, name+": the keys", func() bool { return strings.TrimPrefix(live.Typed(), before) == "\x03ls\r" })
		s.press(t, "x\x1dy")
		if code := s.left(t); code != 0 {
			t.Errorf("%s: exit code %d, %q", name, code, s.seen.String())
		}
		eventually(t, name+": the good-bye", func() bool { return strings.Contains(s.seen.String(), "detached; the mission goes on") })
		eventually(t, name+": what was typed before ctrl-]", func() bool { return strings.HasSuffix(live.Typed(), "ls\rx") })
		s.press(t, "\n") // ends the reading that was left behind
	}
}

func TestAttachAtATerminalWithoutASize(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	s := sitAt(t, pty.Winsize{}, alice(t, h), "mission", "attach", "--write", "m1")
	eventually(t, "the attachment", func() bool { return strings.Contains(s.seen.String(), "attached; ctrl-]") })
	s.press(t, "hello")
	eventually(t, "the keys", func() bool { return h.Engine.Live("m1").Typed() == "hello" })
	s.press(t, "\x1d")
	if code := s.left(t); code != 0 || strings.Contains(s.seen.String(), "resize") || len(h.Engine.Live("m1").Sizes()) != 0 {
		t.Errorf("exit code %d: %q, %v", code, s.seen.String(), h.Engine.Live("m1").Sizes())
	}
	s.press(t, "\n")
}

func TestAttachEndsWithTheSession(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	sh := alice(t, h)
	s := sit(t, sh, "mission", "attach", "m1")
	eventually(t, "the attachment", func() bool { return len(h.Engine.Live("m1").Sizes()) > 0 })

	// The seat is taken; watching is still possible.
	sh.run("mission", "attach", "m1").want(t, ExitConflict).has(t, "somebody else types")
	insists := sit(t, sh, "mission", "attach", "--write", "m1")
	if code := insists.left(t); code != ExitConflict {
		t.Errorf("--write without the slot: exit code %d", code)
	}
	viewer := sh.with("AIRLOCK_TOKEN", apitest.VicToken)
	for _, keys := range []string{"typed\x03", "\x1d"} {
		for name, second := range map[string]*seat{
			"somebody types": sit(t, sh, "mission", "attach", "m1"), "a viewer": sit(t, viewer, "mission", "attach", "m1"),
		} {
			eventually(t, name+": watching", func() bool { return strings.Contains(second.seen.String(), "watching; ctrl-]") })
			second.press(t, keys)
			if code := second.left(t); code != 0 {
				t.Errorf("%s: exit code %d: %q", name, code, second.seen.String())
			}
			second.press(t, "\n")
		}
	}
	if got := h.Engine.Live("m1").Typed(); got != "" {
		t.Errorf("a watcher typed %q", got)
	}
	var out, errs buffer
	watched := make(chan int, 1)
	go func() {
		watched <- sh.start(t.Context(), strings.NewReader(""), &out, &errs, "mission", "attach", "--watch", "m1")
	}()
	if err := h.Engine.Live("m1").Print("seen by both"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watcher", func() bool { return out.String() == "seen by both" })
	if err := h.Engine.End("m1", 0); err != nil {
		t.Fatal(err)
	}
	if code := s.left(t); code != 0 {
		t.Errorf("exit code %d: %q", code, s.seen.String())
	}
	if code := <-watched; code != 0 {
		t.Errorf("watcher: exit code %d: %s", code, errs.String())
	}
	s.press(t, "\n")
	viewer.run("mission", "attach", "m1").want(t, ExitNotAllowed)
	sh.run("mission", "attach", "--write", "--watch", "m1").want(t, ExitFailed).has(t, "watch")
	sh.run("mission", "attach", "none").want(t, ExitNotFound)
}

func TestAttachWithAPipe(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	var out, errs buffer
	done := make(chan int, 1)
	go func() {
		done <- alice(t, h).start(t.Context(), strings.NewReader("line\x1d of input\n"), &out, &errs, "mission", "attach", "m1")
	}()
	eventually(t, "the echo", func() bool { return out.String() == "line\x1d of input\n" })
	if err := h.Engine.End("m1", 0); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
