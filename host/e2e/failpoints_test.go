package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// elsewhere are the kinds of events that no tour comes by, each with the test
// that kills or fails a host there.
var elsewhere = []journal.Kind{
	journal.Granted,       // its webhook gives none; TestRandomCrashSchedules has issuers that do
	journal.Gap,           // written under fail_open only
	journal.RulesChanged,  // by a reload
	journal.Repaired,      // by `airlock journal repair`, with the host stopped
	journal.HeadPublished, // nothing writes it in this release
}

// toured are the engine's points that a tour comes by.
func toured() []failpoint.Point {
	var points []failpoint.Point
	for _, kind := range journal.Kinds() {
		if !slices.Contains(elsewhere, kind) {
			points = append(points, failpoint.Before(kind), failpoint.After(kind))
		}
	}
	return points
}

// TestAKillAtEveryNamedPoint kills a host at AIRLOCK_POINTS points of the engine,
// drawn from all that a tour of what a host does comes by, or at a few: before
// and after each kind of event is stored. What was seen is there afterwards, and
// every mission ends once. The other owners' points are walked by their own
// tests.
func TestAKillAtEveryNamedPoint(t *testing.T) {
	points := toured()
	seed := uint64(number(t, "AIRLOCK_SEED", int(time.Now().UnixNano()&0x7fffffff))) //nolint:gosec // a seed
	t.Logf("AIRLOCK_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's dice
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	if only := os.Getenv("AIRLOCK_POINT"); only != "" {
		points = []failpoint.Point{failpoint.Point(only)}
	}
	c := newChaos(t)
	for i, p := range points[:min(len(points), number(t, "AIRLOCK_POINTS", 5))] {
		began := time.Now()
		c.until("the host is well", c.healthy)
		tours := 0
		c.killAt(p, func() {
			if tours++; tours > 1 {
				t.Fatalf("a tour does not come by %s", p)
			}
			c.tour(fmt.Sprintf("t%d", i))
		})
		c.endTour()
		t.Logf("%-36s %.1f s", p, time.Since(began).Seconds())
	}
	c.judge()
}

// tour leads a host by everything that it stores: a mission that asks and is
// paused, one that is stopped, a harness with an approval, a plan, another
// intent, a call that fails and one whose end nobody knows, and a planned
// restart. The host may end anywhere in it; then nothing more happens.
func (c *chaos) tour(name string) {
	post := func(path string, body map[string]any) bool {
		return !c.dead() && c.call("POST", path, body, nil)/100 == 2
	}
	task := name + "-task"
	if !slices.Contains(c.tasks, task) {
		c.tasks = append(c.tasks, task)
	}
	open := c.harness(task)

	if c.dead() {
		return
	}
	ask := c.of(name+"-asks", `a=$(airlock-cell ask "Go on?"); test "$a" = sure`, 0)
	c.soon("the mission that asks is taken", func() bool { return c.try(ask) == http.StatusAccepted })
	c.soon("the question is answered", func() bool { return c.answer(name+"-asks", "sure") })
	runs := c.of(name+"-stopped", "sleep 300", 0)
	c.soon("the mission that is stopped is taken", func() bool { return c.try(runs) == http.StatusAccepted })
	c.expect(name + "-stopped").aborted = true
	c.soon("the mission runs", func() bool {
		m, _ := c.orc.Mission(name + "-stopped")
		return m.State == "running"
	})
	post("/api/v1/missions/"+name+"-stopped/pause", map[string]any{})
	post("/api/v1/missions/"+name+"-stopped/resume", map[string]any{})
	if c.dead() {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.until("the host ends", c.dead)
	if c.died() {
		return
	}
	c.startQuietly()
	c.soon("the host is back", func() bool { return c.call("GET", "/readyz", nil, nil) == http.StatusOK && c.listed() })
	post("/tasks/"+task+"/resolve", map[string]any{"invocation_id": open, "outcome": "succeeded", "explanation": "seen"})
	c.soon("the abort is taken", func() bool { return post("/api/v1/missions/"+name+"-stopped/abort", map[string]any{}) })
	c.soon("the abort is told", func() bool { return slices.Contains(c.names(name+"-stopped"), "mission.aborted") })
}

// endTour aborts what a tour that was cut short has left.
func (c *chaos) endTour() {
	for i := range c.missions {
		if m, _ := c.orc.Mission(c.missions[i].id); m.State != "done" && m.State != "failed" && m.State != "aborted" {
			c.missions[i].aborted = true
			c.call("POST", "/api/v1/missions/"+c.missions[i].id+"/abort", map[string]any{}, nil)
		}
	}
}

// died says whether the host was killed, and not asked to end.
func (c *chaos) died() bool {
	return c.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
}

// soon waits for something as long as the host lives.
func (c *chaos) soon(what string, cond func() bool) {
	c.until(what, func() bool { return c.dead() || cond() })
}

// of is the body of a dispatch of a mission with that name.
func (c *chaos) of(id, objective string, code int) map[string]any {
	if c.expect(id) == nil {
		c.missions = append(c.missions, expectation{id: id, code: code, quiet: true})
	}
	return map[string]any{"mission_id": id, "objective": objective, "completion": "x"}
}

func (c *chaos) expect(id string) *expectation {
	i := slices.IndexFunc(c.missions, func(e expectation) bool { return e.id == id })
	if i < 0 {
		return nil
	}
	return &c.missions[i]
}

// answer answers what a mission asks.
func (c *chaos) answer(id, text string) bool {
	var list struct {
		Questions []struct {
			ID      string `json:"hitl_id"`
			Mission string `json:"mission_id"`
		} `json:"questions"`
	}
	c.call("GET", "/api/v1/hitl", nil, &list)
	for _, q := range list.Questions {
		if q.Mission == id {
			return c.call("POST", "/api/v1/hitl/"+escape(q.ID)+"/respond", map[string]any{"text": text}, nil) == http.StatusNoContent
		}
	}
	return false
}

// harness has an agent outside of any cell make its calls, and an operator all
// that one can do; it leaves a call open, whose id it gives.
func (c *chaos) harness(task string) (open string) {
	var opened struct {
		Token string `json:"token"`
	}
	if c.call("POST", "/tasks", map[string]any{"task_id": task, "objective": "refund"}, &opened) != http.StatusCreated {
		return "" // the host has ended
	}
	h := &harness{r: c.rig, task: task, token: opened.Token}
	n := 0
	propose := func(tool string) (decision string) {
		n++
		_, a := h.call("POST", "/proposals", map[string]any{"proposal_id": fmt.Sprint("p", n), "tool_name": tool, "tool_args": small})
		decision, _ = a["decision_id"].(string)
		return decision
	}
	begin := func(tool, decision string) (invocation string) {
		invocation, _ = h.dispatch(decision, tool, small)
		return invocation
	}
	control := func(action string) {
		c.call("POST", "/tasks/"+task+"/control?wait=20", map[string]any{"action": action}, nil)
	}
	h.complete(begin("look", propose("look")), "succeeded")
	h.complete(begin("look", propose("look")), "failed")
	h.call("POST", "/access", map[string]any{"kind": "session", "issuer": "issuer", "ref": "s-" + task})
	waits := propose("refund")
	_, a := c.send("/tasks/"+task+"/approval", map[string]any{"decision_id": waits, "action": "approve_once"})
	approved, _ := a["resolved_decision_id"].(string)
	refund := begin("refund", approved)
	control("pause")
	control("resume")
	control("replan")
	c.call("POST", "/tasks/"+task+"/intent", map[string]any{"intent": json.RawMessage(
		`{"id":"i1","goal":"be kind","requested_by":{"type":"human","id":"ann"},"constraints":{},"authority":{},"expires":null,"metadata":{}}`)}, nil)
	c.call("PUT", "/tasks/"+task+"/plan", map[string]any{"plan": []any{map[string]any{"description": "a step"}}}, nil)
	control("stop") // with a call under way
	h.complete(refund, "succeeded")
	control("restart")
	control("resume")
	return begin("look", propose("look"))
}

// docs/proof.md names every point of the table, and no other.
func TestTheTableOfPointsIsThePagesTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Named points")
	section, _, _ = strings.Cut(section, "\n## ")
	var page []failpoint.Point
	for _, m := range regexp.MustCompile("`((?:store|heads|retention|engine)\\.[a-zA-Z_]+)`").FindAllStringSubmatch(section, -1) {
		for _, kind := range journal.Kinds() { // one row for all kinds
			if p := failpoint.Point(strings.ReplaceAll(m[1], "KIND", string(kind))); !slices.Contains(page, p) {
				page = append(page, p)
			}
		}
	}
	table := failpoint.Table()
	slices.Sort(page)
	slices.Sort(table)
	if !slices.Equal(page, table) {
		t.Errorf("the page has the points %v\nthe table has %v", page, table)
	}
}

// TestAClockThatIsSetEndsNoMission: time limits are measured with a clock that
// cannot be set; a mission is neither too old nor idle because the wall clock
// was put an hour ahead, and what comes after is later all the same.
func TestAClockThatIsSetEndsNoMission(t *testing.T) {
	t.Parallel()
	c := newChaos(t)
	c.try(c.of("m", `while [ ! -e $PWD/go ]; do echo x; sleep 0.05; done`, 0))
	c.reaches("m", "running")
	for i, ahead := range []string{"61m", "-61m", "61m"} {
		c.order("clock " + ahead)
		// Two more missions have been through their whole life at that time.
		for j := range 2 {
			id := fmt.Sprintf("beside-%d-%d", i, j)
			c.until("it is taken", func() bool { return c.try(c.of(id, "sleep 0.5", 0)) == http.StatusAccepted })
			if m := c.reaches(id, "done", "failed", "aborted"); m.State != "done" {
				t.Errorf("%s with the clock at %s: %s, %q", id, ahead, m.State, m.Error)
			}
		}
	}
	write(t, c.work+"/go", "", 0o644)
	if m := c.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Errorf("state %s, error %q", m.State, m.Error)
	}
	c.judge()
}
