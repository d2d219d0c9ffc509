package cellagent

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/cell"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func (a *agent) watched(id, script string) *cellv1.Start {
	s := a.terminal(id, script)
	s.WatchWaiting = true
	return s
}

func TestWaitingForInput(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		for _, own := range []bool{false, true} {
			a := startAgent(t, m)
			c := a.dial(t)
			s := a.watched("s", `echo hello; printf '\033[1mProceed?\033[0m (y/n) '; read x; printf 'Again? '; read y; stty -echo; read z; exit 0`)
			if own {
				s.Uid = 0
			}
			start(t, c, s)
			w := event(t, c, waiting)
			if w.GetScreenLine() != "Proceed? (y/n) " || w.GetSessionId() != "s" || w.GetOffset() == 0 || w.GetSince() == nil {
				t.Errorf("waiting %v", w)
			}
			if err := c.Input(long(t), "s", "1", []byte("y\n"), 1); err != nil {
				t.Fatal(err)
			}
			if w := event(t, c, waiting); w.GetScreenLine() != "Again? " {
				t.Errorf("waiting %v", w)
			}
			// A host that was away when it was told is told again.
			c = a.dial(t)
			if w := event(t, c, waiting); w.GetScreenLine() != "Again? " {
				t.Errorf("waiting %v", w)
			}
			// A read that nothing is printed before is another one.
			if err := c.Input(long(t), "s", "2", []byte("y\n"), 1); err != nil {
				t.Fatal(err)
			}
			event(t, c, waiting)
			if err := c.Input(long(t), "s", "3", []byte("y\n"), 1); err != nil {
				t.Fatal(err)
			}
			if e := event(t, c, exited); e.GetCode() != 0 {
				t.Error(e)
			}
		}
	})
}

func TestWaitingIsToldOncePerRead(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.watched("s", `printf 'Name: '; read x`))
	first := event(t, c, waiting)
	// A second report could only come within the longest pause between looks.
	select {
	case e := <-c.Events():
		t.Errorf("first %v, and then %v", first, e)
	case <-time.After(3 * maxLook):
	}
}

// None of these reads its terminal, though all are quiet behind a prompt.
func TestNotWaiting(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	for id, script := range map[string]string{
		"sleeps":                 `printf 'Proceed? (y/n) '; exec sleep 1000`,
		"reads a pipe":           `printf 'Proceed? (y/n) '; sleep 1000 | cat`,
		"waits for a child":      `printf 'Proceed? (y/n) '; sleep 1000; :`,
		"reads in the back":      `set -m; printf 'Proceed? (y/n) '; cat & sleep 1000`,
		"reads something else":   `printf 'Proceed? (y/n) '; exec cat $DIR/fifo`,
		"computes":               `printf 'Proceed? (y/n) '; i=0; while :; do i=$((i+1)); done`,
		"another session's read": `printf 'Proceed? (y/n) '; exec setsid -w cat`,
	} {
		s := a.watched(id, script)
		dir := openTempDir(t)
		if err := exec.Command("mkfifo", "-m", "666", dir+"/fifo").Run(); err != nil {
			t.Fatal(err)
		}
		s.Env = append(s.Env, "DIR="+dir)
		start(t, c, s)
	}
	quiet := time.After(4 * maxLook)
	for {
		select {
		case e := <-c.Events():
			if e.Waiting != nil && e.Waiting.GetSessionId() != "another session's read" {
				t.Errorf("%v", e.Waiting)
			}
			if e.Exited != nil {
				t.Errorf("%v", e.Exited)
			}
			continue
		case <-quiet:
		}
		break
	}
	// The same agent does see one that reads.
	start(t, c, a.watched("reads", `printf 'Proceed? (y/n) '; exec cat`))
	event(t, c, func(e cell.Event) *cellv1.Waiting {
		if e.Waiting.GetSessionId() == "reads" {
			return e.Waiting
		}
		return nil
	})
}

// Line editors wait in select or poll before they read.
func TestWaitingOfALineEditor(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("no bash")
	}
	a := startAgent(t, plain)
	c := a.dial(t)
	s := a.watched("s", "")
	s.Argv = []string{"bash", "-c", `read -e -p "Your name: " x; echo "hello $x"`}
	start(t, c, s)
	if w := event(t, c, waiting); w.GetScreenLine() != "Your name: " {
		t.Errorf("waiting %v", w)
	}
	if err := c.Input(long(t), "s", "1", []byte("me\r"), 1); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "s", 0, "hello me")
}
