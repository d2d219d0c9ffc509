package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// two side effects with time in between, and an exit code
const effects = `echo a >> $PWD/%[1]s.a; sleep 0.3; echo b >> $PWD/%[1]s.b; exit %[2]d`

// ordinary are the points that the host comes by with every mission.
func ordinary() []failpoint.Point {
	points := []failpoint.Point{
		failpoint.StoreQueued, failpoint.StoreBegun, failpoint.StoreApplied, failpoint.StoreCommitted, failpoint.StorePublished, failpoint.StoreAnswered,
		failpoint.HeadsBeforeAppend, failpoint.HeadsBeforeSync, failpoint.HeadsAfterSync,
	}
	for _, kind := range []journal.Kind{journal.TaskOpened, journal.Assigned, journal.Starting, journal.Proposed, journal.Decision, journal.Executed,
		journal.Started, journal.Progress, journal.Completed, journal.RevocationStarted, journal.RevocationResult, journal.Ended} {
		points = append(points, failpoint.Before(kind), failpoint.After(kind))
	}
	return points
}

// step makes one move; what follows a colon is its argument.
func (c *chaos) step(move string) {
	c.t.Helper()
	name, arg, _ := strings.Cut(move, ":")
	switch name {
	case "mission":
		c.mission(arg, 0)
	case "fails":
		c.mission(arg, 7)
	case "abort":
		c.mission(arg, 0)
		last := &c.missions[len(c.missions)-1]
		last.aborted = true
		c.call("POST", "/api/v1/missions/"+last.id+"/abort", map[string]any{}, nil)
	case "kill-host":
		c.restart(syscall.SIGKILL)
	case "stop-host":
		c.restart(syscall.SIGTERM)
	case "kill-at":
		body := c.next("", 0)
		c.killAt(failpoint.Point(arg), func() { c.try(body) })
		c.taken(body)
	case "kill-driver":
		kill(c.pluginPids("host-supervisor"), syscall.SIGKILL)
	case "kill-runtime":
		kill(c.pluginPids("command"), syscall.SIGKILL)
	case "kill-revoker":
		kill(c.pluginPids("webhook"), syscall.SIGKILL)
	case "kill-plugin":
		kill(c.pluginPids(arg), syscall.SIGKILL)
	case "kill-cell":
		c.expose("")
		if pids := cellPids(c.dir, true); len(pids) > 0 {
			kill(pids[:1], syscall.SIGKILL)
		}
	case "kill-qemu":
		c.expose("qemu-kvm")
		for _, pid := range c.vms() {
			kill([]int{pid}, syscall.SIGKILL)
			break
		}
	case "kill-dockerd": // with live-restore its containers stay
		needs.engine.Kill()
		if err := needs.engine.Up(); err != nil {
			c.t.Fatal(err)
		}
	case "orchestrator":
		c.orc.SetDown(true)
		c.until("the host has noticed", func() bool { return !c.listed() })
		c.orc.SetDown(false)
		c.until("the host is registered again", c.connected)
	case "kill-orchestrator": // what it kept in memory is gone
		for i := range c.missions {
			c.missions[i].forgotten = true
		}
		c.orc.Restart()
		c.until("the host is registered again", c.connected)
	case "clock":
		c.order("clock " + arg)
	case "fail":
		c.failAt(failpoint.Point(arg))
	case "full-disk":
		c.fullDisk()
	default:
		c.t.Fatalf("no such step: %q", move)
	}
}

// mission dispatches one. A refusal while a plugin is away is an answer too, and
// then nothing of it may run.
func (c *chaos) mission(place string, code int) {
	c.t.Helper()
	body := c.next(place, code)
	c.taken(body)
}

// taken dispatches a mission until the host has it.
func (c *chaos) taken(body map[string]any) {
	c.t.Helper()
	c.until("the dispatch is taken", func() bool { return c.try(body) == http.StatusAccepted })
}

// next is the body of a dispatch of the next mission.
func (c *chaos) next(place string, code int) map[string]any {
	c.n++
	id := fmt.Sprintf("m%d", c.n)
	if place != "" {
		id += "-" + place
	}
	c.missions = append(c.missions, expectation{id: id, code: code})
	body := map[string]any{"mission_id": id, "objective": fmt.Sprintf(effects, id, code), "completion": "x"}
	if place != "" {
		body["executor_filter"] = map[string]any{"agent_id": place}
	}
	return body
}

func (c *chaos) try(body map[string]any) int {
	code, _ := c.tryDispatch(body)
	if e := c.expect(body["mission_id"].(string)); e != nil && code == http.StatusAccepted {
		e.taken = true
	}
	return code
}

func (c *chaos) expose(place string) {
	for i := range c.missions {
		if strings.HasSuffix(c.missions[i].id, place) {
			c.missions[i].exposed = true
		}
	}
}

// restart ends the host and starts it again; what it has shown until then is
// what it must have afterwards.
func (c *chaos) restart(sig syscall.Signal) {
	c.t.Helper()
	c.remember()
	c.end(sig)
	c.start()
}

func (c *chaos) ordersFile() string { return filepath.Join(c.dir, "orders") }

// order tells the host's failpoints what is to happen.
func (c *chaos) order(lines ...string) {
	c.t.Helper()
	text := strings.Join(lines, "\n")
	if err := renameio.WriteFile(c.ordersFile(), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// met says whether the host has killed itself at a point.
func (c *chaos) met(p failpoint.Point) bool {
	text, _ := os.ReadFile(c.ordersFile() + ".met")
	return slices.Contains(strings.Fields(string(text)), string(p))
}

func (c *chaos) dead() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// killAt has the host kill itself at a point that do leads it by; do is called
// until it has.
func (c *chaos) killAt(p failpoint.Point, do func()) {
	c.t.Helper()
	c.remember()
	_ = os.Remove(c.ordersFile() + ".met")
	c.order(string(p) + " kill")
	c.until(fmt.Sprintf("the host comes by %s", p), func() bool {
		if !c.dead() {
			do()
		}
		return c.dead()
	})
	if !c.met(p) {
		c.t.Errorf("the host has ended, but not at %s", p)
	}
	c.order()
	c.start()
}

// failAt has the store fail at a point, as a disk does that cannot sync: nothing
// is taken any more until the host is started again.
func (c *chaos) failAt(p failpoint.Point) {
	c.t.Helper()
	c.order(string(p) + " fail")
	body := c.next("", 0)
	c.until("the store is poisoned", func() bool {
		c.try(body)
		return strings.Contains(c.trouble(), "I/O error")
	})
	c.remember()
	c.order()
	c.end(syscall.SIGKILL)
	c.start()
	c.taken(body)
}

// trouble is what the host says of why it is not ready.
func (c *chaos) trouble() string {
	var all json.RawMessage
	c.call("GET", "/readyz", nil, &all)
	return string(all)
}

// fullDisk fills the disk that the data directory is on, for as long as it takes
// to refuse a mission.
func (c *chaos) fullDisk() {
	c.t.Helper()
	if c.disk == "" {
		c.t.Fatal("full-disk takes root")
	}
	filler, err := os.OpenFile(filepath.Join(c.disk, "filler"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	fill := func() {
		for err = nil; err == nil; {
			_, err = filler.Write(make([]byte, 64<<10))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			c.t.Fatal(err)
		}
	}
	fill()
	var body map[string]any
	c.until("a mission is refused", func() bool {
		fill() // what was given back meanwhile
		body = c.next("", 0)
		return c.try(body) != http.StatusAccepted && strings.Contains(c.trouble(), "no space left")
	})
	if err := errors.Join(filler.Close(), os.Remove(filler.Name())); err != nil {
		c.t.Fatal(err)
	}
	c.taken(body)
}
