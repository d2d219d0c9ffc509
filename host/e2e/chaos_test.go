package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// number reads a setting of the long modes: a number, or few.
func number(t *testing.T, name string, few int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return few
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, not a number", name, v)
	}
	return n
}

// chaos is a host under faults, with a model of what must be true of each of its
// missions whatever happens.
type chaos struct {
	*rig
	n        int
	missions []expectation
	steps    []string
}

// expectation is what may become of one mission.
type expectation struct {
	id      string
	code    int  // of its process
	aborted bool // an abort was asked for
	exposed bool // its cell agent may have been killed
}

// two side effects with time in between, and an exit code
const effects = `echo a >> $PWD/%[1]s.a; sleep 0.3; echo b >> $PWD/%[1]s.b; exit %[2]d`

// moves are the steps of a schedule; those that are there twice come twice as
// often.
func moves() []string {
	return []string{"mission", "mission", "mission", "fails", "abort", "kill-host", "kill-driver", "kill-runtime", "kill-cell", "stop-host", "orchestrator"}
}

func (c *chaos) step(move string) {
	c.t.Helper()
	c.steps = append(c.steps, move)
	switch move {
	case "mission":
		c.mission(0)
	case "fails":
		c.mission(7)
	case "abort":
		c.mission(0)
		last := &c.missions[len(c.missions)-1]
		last.aborted = true
		c.call("POST", "/api/v1/missions/"+last.id+"/abort", map[string]any{}, nil)
	case "kill-host":
		c.end(syscall.SIGKILL)
		c.start()
	case "stop-host":
		c.end(syscall.SIGTERM)
		c.start()
	case "kill-driver":
		kill(c.pluginPids("host-supervisor"), syscall.SIGKILL)
	case "kill-runtime":
		kill(c.pluginPids("command"), syscall.SIGKILL)
	case "kill-cell":
		for i := range c.missions {
			c.missions[i].exposed = true
		}
		if pids := cellPids(c.dir, true); len(pids) > 0 {
			kill(pids[:1], syscall.SIGKILL)
		}
	case "orchestrator":
		c.orc.SetDown(true)
		c.until("the host has noticed", func() bool { return !c.listed() })
		c.orc.SetDown(false)
		c.until("the host is registered again", c.connected)
	default:
		c.t.Fatalf("no such step: %q", move)
	}
}

// mission dispatches one. A refusal while a plugin is away is an answer too, and
// then nothing of it may run.
func (c *chaos) mission(code int) {
	c.n++
	id := fmt.Sprintf("m%d", c.n)
	c.missions = append(c.missions, expectation{id: id, code: code})
	body := map[string]any{"mission_id": id, "objective": fmt.Sprintf(effects, id, code), "completion": "x"}
	c.until("the dispatch is taken", func() bool {
		status, _ := c.tryDispatch(body)
		return status == 202
	})
}

// judge waits until every mission is over and holds it against the model: one
// terminal state, told once, and no side effect twice.
func (c *chaos) judge() {
	c.t.Helper()
	for _, e := range c.missions {
		m := c.reaches(e.id, "done", "failed", "aborted")
		a, b := len(c.lines(e.id+".a")), len(c.lines(e.id+".b"))
		want := "done"
		if e.code != 0 {
			want = "failed"
		}
		excused := e.exposed && m.State == "failed" && m.ExitCode == nil || // with its cell
			m.State == "failed" && m.ExitCode == nil && a == 0 && b == 0 || // it was never started
			e.aborted && m.State == "aborted"
		switch {
		case a > 1 || b > 1:
			c.t.Errorf("%s: its side effects happened %d and %d times", e.id, a, b)
		case excused:
		case m.State != want || m.ExitCode == nil || *m.ExitCode != e.code:
			c.t.Errorf("%s: state %s, exit code %v, error %q; want %s with %d", e.id, m.State, m.ExitCode, m.Error, want, e.code)
		case a != 1 || b != 1:
			c.t.Errorf("%s: %s, and its side effects happened %d and %d times", e.id, m.State, a, b)
		}
		ends := 0
		for _, kind := range c.journal(e.id) {
			if kind == "ended" {
				ends++
			}
		}
		told := map[string]bool{}
		for _, name := range c.names(e.id) {
			switch name {
			case "mission.completed", "mission.failed", "mission.aborted":
				told[name] = true
			}
		}
		if ends != 1 || len(told) != 1 {
			c.t.Errorf("%s: %d ends in its journal, told as %v", e.id, ends, told)
		}
		var verdict struct {
			Valid bool `json:"valid"`
		}
		if status := c.call("GET", "/tasks/"+e.id+"/verify", nil, &verdict); status != 200 || !verdict.Valid {
			c.t.Errorf("%s: its journal does not verify (%d)", e.id, status)
		}
	}
	c.missions = nil
}

// newChaos starts a host for a schedule; the rig looks for orphans at the end.
func newChaos(t *testing.T) *chaos {
	return &chaos{rig: newRig(t, settings{slots: 6, agent: "governance {\n    max_resumes = 1000\n  }"})}
}

// TestAScheduleOfKills runs random schedules of kills: AIRLOCK_SCHEDULES of them,
// or one. A seed makes the same schedule again (AIRLOCK_SEED), and so does its
// text (AIRLOCK_SCHEDULE, steps separated by commas); with AIRLOCK_MINIMISE=1 a
// schedule that fails is made as short as it fails with.
func TestAScheduleOfKills(t *testing.T) {
	if text := os.Getenv("AIRLOCK_SCHEDULE"); text != "" {
		runSchedule(t, strings.Split(text, ","))
		return
	}
	seed := uint64(number(t, "AIRLOCK_SEED", int(time.Now().UnixNano()&0x7fffffff))) //nolint:gosec // a seed
	for i := range number(t, "AIRLOCK_SCHEDULES", 1) {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // an index
		var steps []string
		for range 10 {
			steps = append(steps, moves()[rng.IntN(len(moves()))])
		}
		name := fmt.Sprintf("seed %d schedule %d", seed, i)
		ok := t.Run(name, func(t *testing.T) {
			t.Logf("%s: AIRLOCK_SCHEDULE=%s", name, strings.Join(steps, ","))
			runSchedule(t, steps)
		})
		if !ok && os.Getenv("AIRLOCK_MINIMISE") == "1" {
			t.Errorf("the shortest that fails: AIRLOCK_SCHEDULE=%s", strings.Join(minimise(steps), ","))
		}
	}
}

func runSchedule(t *testing.T, steps []string) {
	c := newChaos(t)
	for _, move := range steps {
		c.step(move)
	}
	c.judge()
}

// minimise takes steps out of a schedule for as long as it fails without them.
func minimise(steps []string) []string {
	for i := 0; i < len(steps); {
		shorter := slices.Delete(slices.Clone(steps), i, i+1)
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAScheduleOfKills$")
		cmd.Env = append(os.Environ(), "AIRLOCK_SCHEDULE="+strings.Join(shorter, ","), "AIRLOCK_BIN="+bin, "AIRLOCK_RACE=")
		if len(shorter) > 0 && cmd.Run() != nil {
			steps = shorter
			continue
		}
		i++
	}
	return steps
}
