package cellagent

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

func (a *agent) terminal(id, script string) *cellv1.Start {
	s := a.sh(id, script)
	s.Terminal = &cellv1.TerminalSize{Cols: 101, Rows: 33}
	return s
}

func TestTerminalSizeEchoAndEnd(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, m mode) {
		a := startAgent(t, m)
		c := a.dial(t)
		start(t, c, a.terminal("s", `tty; test -w $(tty) && echo mine; stty size; echo $TERM; while read x; do stty size; echo "got <$x>"; done; echo end; exit 2`))
		if out := readUntil(t, c, "s", 0, "xterm-256color"); !strings.Contains(out, "/dev/pts/") || !strings.Contains(out, "33 101") || !strings.Contains(out, "mine") {
			t.Errorf("output %q", out)
		}
		if err := c.Resize(long(t), "s", 77, 22); err != nil {
			t.Fatal(err)
		}
		if err := c.Input(long(t), "s", "k", []byte("typed\n"), 1); err != nil {
			t.Fatal(err)
		}
		out := readUntil(t, c, "s", 0, "got <typed>")
		if !strings.Contains(out, "typed\r\n") || !strings.Contains(out, "22 77") {
			t.Errorf("no echo, or no resize: %q", out)
		}
		// A line that has not ended: the end of the file comes behind it.
		if err := c.Input(long(t), "s", "k2", []byte("rest"), 1); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseInput(long(t), "s", 1); err != nil {
			t.Fatal(err)
		}
		if o := readAll(t, c, "s"); !bytes.HasSuffix(o.stdout, []byte("end\r\n")) {
			t.Errorf("output %q", o.stdout)
		}
		if e := event(t, c, exited); e.GetCode() != 2 {
			t.Errorf("exited %v", e)
		}
		wantErr(t, c.Resize(long(t), "s", 1, 1), cell.ErrClosed)
	})
}

func TestTerminalTakesInterrupt(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	// The shell starts the sleeper as the foreground group of its own.
	start(t, c, a.terminal("s", `set -m; sh -c 'trap "echo inner; exit 3" INT; echo ready; while :; do sleep 0.05; done'; echo status $?`))
	readUntil(t, c, "s", 0, "ready")
	if err := c.Signal(long(t), "s", 2, 1); err != nil {
		t.Fatal(err)
	}
	if o := readAll(t, c, "s"); !strings.Contains(string(o.stdout), "status 3") {
		t.Errorf("output %q", o.stdout)
	}
	start(t, c, a.terminal("typed", `trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.05; done`))
	readUntil(t, c, "typed", 0, "ready")
	if err := c.Input(long(t), "typed", "", []byte{3}, 1); err != nil {
		t.Fatal(err)
	}
	for e := event(t, c, exited); e.GetSessionId() != "typed" || e.GetCode() != 4; e = event(t, c, exited) {
	}
}

// The kernel keeps 4,095 bytes of a line in canonical mode and drops the rest
// without a word.
func TestTerminalTakesLongLinesWhole(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	for _, n := range []int{10, 2047, 2048, 2049, 4095, 4096, 5000, 100_000} {
		id := fmt.Sprint("line", n)
		start(t, c, a.terminal(id, `stty -echo; echo ready; read x; echo "${#x} end"`))
		readUntil(t, c, id, 0, "ready")
		if err := c.Input(long(t), id, "k", append(bytes.Repeat([]byte("x"), n), '\n'), 1); err != nil {
			t.Fatal(err)
		}
		if o := readAll(t, c, id); !strings.Contains(string(o.stdout), fmt.Sprintf("%d end", n)) {
			t.Errorf("a line of %d: %q", n, o.stdout)
		}
		event(t, c, exited)
	}
	// Raw mode has no lines, and every byte counts.
	start(t, c, a.terminal("raw", `stty raw -echo; echo ready; head -c 300000 | cksum`))
	readUntil(t, c, "raw", 0, "ready")
	if err := c.Input(long(t), "raw", "k", bytes.Repeat([]byte("\x00\x04\x03abc"), 50_000), 1); err != nil {
		t.Fatal(err)
	}
	if o := readAll(t, c, "raw"); !strings.Contains(string(o.stdout), " 300000") {
		t.Errorf("raw: %q", o.stdout)
	}
}

func TestTerminalOutputIsExact(t *testing.T) {
	t.Parallel()
	a := startAgent(t, plain)
	c := a.dial(t)
	start(t, c, a.terminal("s", `stty -opost; i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done`))
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if o := readAll(t, c, "s"); string(o.stdout) != want.String() {
		t.Errorf("%d bytes, want %d, or other ones", len(o.stdout), want.Len())
	}
}
