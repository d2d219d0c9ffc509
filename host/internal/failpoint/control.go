package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// File is the variable of the host's environment that names the file of a
// Control. It is for tests of whole hosts; without it every hook is nil.
const File = "AIRLOCK_FAILPOINTS"

// ErrFailed is what an operation fails with at a point.
var ErrFailed = errors.New("input/output error at a point of a test")

// Control reads from a file what is to happen at which point. The file may
// change at any time and is replaced by rename; each line is one of
//
//	POINT kill    the process kills itself there; the point is noted in FILE.met before
//	POINT fail    the operation there fails, as if the disk had
//	clock 1h30m   the wall clock is that much ahead, or behind
//
// A line that is none of these ends the process: a schedule that tests nothing
// must not look like one that passes.
type Control struct{ path string }

// New is the control of a file; "" is none, and every hook is nil.
func New(path string) (*Control, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // off
	}
	c := &Control{path: path}
	if _, err := c.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	return c, nil
}

// Hook is what the owners of points call; nil when there is no control.
func (c *Control) Hook() Hook {
	if c == nil {
		return nil
	}
	return func(p Point) error {
		switch c.must()[string(p)] {
		case "kill":
			c.note(p)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "fail":
			return fmt.Errorf("%w: %s", ErrFailed, p)
		}
		return nil
	}
}

// Now is the wall clock; nil when there is no control.
func (c *Control) Now() func() time.Time {
	if c == nil {
		return nil
	}
	return func() time.Time {
		text, set := c.must()["clock"]
		if !set {
			return time.Now()
		}
		ahead, _ := time.ParseDuration(text)
		// Without the monotonic reading, so that who measures with it sees the jump:
		// harder than a clock that is set, which Go's own subtraction does not see.
		return time.Now().Round(0).Add(ahead)
	}
}

func (c *Control) read() (map[string]string, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return nil, err
	}
	orders := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, bad := time.ParseDuration(what)
		switch {
		case name == "clock" && bad == nil:
		case (what == "kill" || what == "fail") && slices.Contains(Table(), Point(name)):
		default:
			return nil, fmt.Errorf("%s: %q is no order", c.path, strings.TrimSpace(line))
		}
		orders[name] = what
	}
	return orders, nil
}

func (c *Control) must() map[string]string {
	orders, err := c.read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "failpoint:", err)
		os.Exit(1)
	}
	return orders
}

// note says in the file beside that a point was met.
func (c *Control) note(p Point) {
	f, err := os.OpenFile(c.path+".met", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintln(f, p)
	_ = f.Close()
}
