package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
)

// The tests of the three drivers share one Docker engine and boot at most two
// VMs at a time: they run one after another.

// places are the agents of a driverRig, each in cells of another driver; the
// plugins have the drivers' names.
var places = []string{"host-supervisor", "docker", "qemu-kvm"}

// driverNeeds is what the three drivers need of the machine, made once.
type driverNeeds struct {
	once   sync.Once
	engine *dockertest.Engine
	image  qemutest.Image
	err    error
}

var needs driverNeeds

var _ = func() bool { closeNeeds = needs.close; return true }()

// get ends a test that cannot have a real dockerd and a real QEMU.
func (n *driverNeeds) get(t *testing.T) *driverNeeds {
	t.Helper()
	dockertest.Require(t)
	n.once.Do(func() {
		if n.image, n.err = qemutest.Build(); n.err != nil {
			return
		}
		if n.engine, n.err = dockertest.New(); n.err == nil {
			n.err = n.engine.Import()
		}
	})
	if n.err != nil {
		if os.Getenv("AIRLOCK_REQUIRE") != "" {
			t.Fatal(n.err)
		}
		t.Skip(n.err)
	}
	return n
}

// close ends the engine at the end of all tests.
func (n *driverNeeds) close() error {
	if n.engine == nil {
		return nil
	}
	return n.engine.Close()
}

// driverRig is a rig with one agent for each driver, named as the driver's
// plugin; lines are added to each agent's block, extra to the file.
func driverRig(t *testing.T, lines, extra string) *rig {
	t.Helper()
	n := needs.get(t)
	text := fmt.Sprintf(`
uid_range = [261000, 262999]
isolation "docker" "container" {
  config {
    endpoint = %q
    image    = %q
    pull     = "never"
  }
}
isolation "qemu-kvm" "vm" {
  config {
    image = %q
    qemu  = %q
  }
}
`, n.engine.Endpoint(), dockertest.Busybox, n.image.Dir, n.image.QEMU)
	for agent, isolation := range map[string]string{
		"host-supervisor": "host-supervisor.host", "docker": "docker.container", "qemu-kvm": "qemu-kvm.vm",
	} {
		text += fmt.Sprintf(`
agent %q {
  isolation = isolation.%s
  runtime   = runtime.command.shell
  slots     = 2
  resources {
    cpu    = 1
    memory = "256MiB"
    pids   = 64
  }
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
  %s
}
`, agent, isolation, lines)
	}
	r := newRig(t, settings{runtime: prompts, extra: text + extra, orc: optionsWithAgentID()})
	r.patience = 4 // a VM without KVM is slow beside everything else
	t.Cleanup(r.leftovers)
	r.until("all plugins are there", r.allHealthy)
	return r
}

// with gives the rig to a subtest.
func (r *rig) with(t *testing.T) *rig {
	c := *r
	c.t = t
	return &c
}

// allHealthy says that every plugin takes work.
func (r *rig) allHealthy() bool { return len(r.unhealthy()) == 0 }

// unhealthy are the plugins that take no work, with their reasons; one entry of
// the host's when it is not ready for another reason.
func (r *rig) unhealthy() map[string]string {
	var ready struct {
		Ready   bool              `json:"ready"`
		Plugins map[string]string `json:"plugins"`
	}
	r.call("GET", "/readyz", nil, &ready)
	if len(ready.Plugins) != len(places)+1 {
		return map[string]string{"host": fmt.Sprintf("it knows of %v", ready.Plugins)}
	}
	bad := map[string]string{}
	for name, why := range ready.Plugins {
		if why != "" {
			bad[name] = why
		}
	}
	return bad
}

// dispatchTo sends a mission to the agent of that name.
func (r *rig) dispatchTo(place, id, objective string) {
	r.t.Helper()
	if code, text := r.tryDispatchTo(place, id, objective); code != http.StatusAccepted {
		r.t.Fatalf("dispatch of %q to %s: %d %s", id, place, code, text)
	}
}

func (r *rig) tryDispatchTo(place, id, objective string) (int, string) {
	r.t.Helper()
	return r.tryDispatch(map[string]any{"mission_id": id, "objective": objective, "completion": "it exits 0",
		"executor_filter": map[string]any{"agent_id": place}})
}

// inPlaces runs a part of a test for each driver, all at the same time.
func (r *rig) inPlaces(t *testing.T, part func(r *rig, place string)) {
	t.Helper()
	t.Run("each", func(t *testing.T) { // it ends when all have ended
		for _, place := range places {
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				part(r.with(t), place)
			})
		}
	})
}

// ending is how a mission ended, as operator and orchestrator see it.
type ending struct {
	State, Reason, Error string
	Code                 int
	Events, Journal      []string
	Size                 int
	Sum                  [sha256.Size]byte // of the output
}

func (e ending) String() string {
	return fmt.Sprintf("%s %s, code %d, error %q, events %v, journal %v, %d bytes of output with sum %x",
		e.State, e.Reason, e.Code, e.Error, e.Events, e.Journal, e.Size, e.Sum[:4])
}

// ending waits for a mission's end.
func (r *rig) ending(id string) ending {
	r.t.Helper()
	m := r.reaches(id, "done", "failed", "aborted")
	e := ending{State: m.State, Reason: r.reason(id), Error: m.Error, Code: -1, Events: slices.Compact(r.names(id)), Journal: r.journal(id)}
	if m.ExitCode != nil {
		e.Code = *m.ExitCode
	}
	out := r.output(id)
	e.Size, e.Sum = len(out), sha256.Sum256(out)
	return e
}

// reason is why a mission is in its state.
func (r *rig) reason(id string) string {
	r.t.Helper()
	var view struct {
		Reason string `json:"state_reason"`
	}
	if code := r.call("GET", "/api/v1/missions/"+escape(id), nil, &view); code != http.StatusOK {
		r.t.Fatalf("mission %q: %d", id, code)
	}
	return view.Reason
}

// session is a mission's terminal.
func (r *rig) session(id string) string {
	r.t.Helper()
	var view struct {
		Session string `json:"pty_session_id"`
	}
	r.until("the mission has a session", func() bool {
		return r.call("GET", "/api/v1/missions/"+escape(id), nil, &view) == http.StatusOK && view.Session != ""
	})
	return view.Session
}

// output is what there is of a mission's output.
func (r *rig) output(id string) []byte {
	r.t.Helper()
	resp, err := r.api.Get("http://localhost/api/v1/sessions/" + escape(r.session(id)) + "/log")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("output of %q: %d %v", id, resp.StatusCode, err)
	}
	return text
}

// much writes the workspace's file of that name; the terminal is told to leave
// it alone.
const much = "stty -opost; cat much"

// muchOutput is 10 MiB no two pieces of which are alike.

func muchOutput() []byte {
	var b bytes.Buffer
	for i := 1; b.Len() < 10485760; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.Bytes()[:10485760]
}

// TestTheDriversAreEqual: what a mission sees of its cell, and what is seen of
// the mission, does not depend on the driver.
func TestTheDriversAreEqual(t *testing.T) {
	r := driverRig(t, "", "")
	expected := muchOutput()
	write(t, filepath.Join(r.work, "much"), string(expected), 0o644)
	site := "http://" + listenHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "never") }) + "/"
	script := []struct {
		id, objective string
		state, reason string
		code          int
		output        string
	}{
		{"zero", "echo hello", "done", "", 0, "hello\r\n"},
		{"three", "exit 3", "failed", "non_zero_exit", 3, ""},
		{"not-executable", "/etc/passwd 2>/dev/null", "failed", "non_zero_exit", 126, ""},
		{"missing", "/no/such/program 2>/dev/null", "failed", "non_zero_exit", 127, ""},
		{"high", "exit 255", "failed", "non_zero_exit", 255, ""},
		{"killed", "kill -9 $$", "failed", "signal", 137, ""},
		{"terminated", "kill -15 $$", "failed", "signal", 143, ""},
		{"much", much, "done", "", 0, string(expected)},
		{"network", "busybox wget -q -O - " + site + " 2>/dev/null; echo $?; grep -c : /proc/net/dev; env | grep -ic proxy=", "failed", "non_zero_exit", 1, "1\r\n1\r\n0\r\n"},
		{"place", "pwd; tty >/dev/null && stty size; umask; ulimit -c; echo $TERM", "done", "", 0, ""},
	}
	var mu sync.Mutex
	seen := map[string]map[string]ending{} // by part of the script and driver
	r.inPlaces(t, func(r *rig, place string) {
		for _, part := range script {
			id := part.id + "@" + place
			r.dispatchTo(place, id, part.objective)
			e := r.ending(id)
			if e.State != part.state || e.Code != part.code {
				r.t.Errorf("%s: %s; want %s with code %d", part.id, e, part.state, part.code)
			}
			if part.reason != "" && e.Reason != part.reason {
				r.t.Errorf("%s: reason %q, want %q", part.id, e.Reason, part.reason)
			}
			if want := part.output; want != "" && e.Sum != sha256.Sum256([]byte(want)) {
				r.t.Errorf("%s: %d bytes of output, not the %d that were written", part.id, e.Size, len(want))
			}
			if part.id == "place" {
				r.t.Logf("%s", r.output(id))
			}
			mu.Lock()
			if seen[part.id] == nil {
				seen[part.id] = map[string]ending{}
			}
			seen[part.id][place] = e
			mu.Unlock()
		}
	})
	for id, by := range seen {
		first := by[places[0]]
		for _, place := range places[1:] {
			if got := by[place]; got.String() != first.String() {
				t.Errorf("%s differs:\n%s: %s\n%s: %s", id, places[0], first, place, got)
			}
		}
	}
	for _, part := range []struct {
		name string
		run  func(r *rig, place string)
	}{
		{"a child that has escaped dies with the cell", (*rig).escapedChild},
		{"an abort ends all at once", (*rig).abortedWriter},
		{"a question is answered by a human", (*rig).askedAndAnswered},
		{"the terminal is resized", (*rig).resized},
		{"a pause stands still", (*rig).pausedWriter},
	} {
		t.Run(part.name, func(t *testing.T) { r.inPlaces(t, part.run) })
	}
}

// beat is a process that has left its session and its parents, and writes.
const beat = `(setsid sh -c '(trap "" TERM HUP INT; while :; do echo x >> $PWD/%[1]s; sleep 0.02; done) &' &)
while [ ! -s $PWD/%[1]s ]; do sleep 0.02; done
`

// quiet says that a file grows no more from now on.
func (r *rig) quiet(name string) {
	r.t.Helper()
	before := r.size(name)
	if before == 0 {
		r.t.Errorf("%s was never written to", name)
	}
	r.dispatch("wait-"+name, "sleep 0.5") // ten rounds of the writer
	r.reaches("wait-"+name, "done")
	if after := r.size(name); after != before {
		r.t.Errorf("%s has grown from %d to %d bytes", name, before, after)
	}
}

func (r *rig) escapedChild(place string) {
	id := "escaped-" + place
	r.dispatchTo(place, id, fmt.Sprintf(beat, id)+"exit 0")
	if e := r.ending(id); e.State != "done" {
		r.t.Error(e)
	}
	r.cellsOf(place, 0)
	r.quiet(id)
}

func (r *rig) abortedWriter(place string) {
	id := "aborted-" + place
	r.dispatchTo(place, id, fmt.Sprintf(beat, id)+"trap '' TERM; while :; do sleep 1; done")
	r.until("it writes", func() bool { return r.size(id) > 0 })
	if code := r.call("POST", "/api/v1/missions/"+id+"/abort", map[string]any{}, nil); code/100 != 2 {
		r.t.Errorf("abort: %d", code)
	}
	r.reaches(id, "aborted")
	r.quiet(id)
}

func (r *rig) pausedWriter(place string) {
	id := "paused-" + place
	r.dispatchTo(place, id, fmt.Sprintf(beat, id)+"while [ ! -e $PWD/"+id+".go ]; do sleep 0.05; done; exit 5")
	r.until("it writes", func() bool { return r.size(id) > 0 })
	for _, verb := range []string{"pause", "resume"} {
		if code := r.call("POST", "/api/v1/missions/"+id+"/"+verb, map[string]any{}, nil); code/100 != 2 {
			r.t.Errorf("%s: %d", verb, code)
		}
		if verb == "pause" {
			r.reaches(id, "paused")
			r.quiet(id)
		}
	}
	before := r.size(id)
	r.until("it writes again", func() bool { return r.size(id) > before })
	write(r.t, filepath.Join(r.work, id+".go"), "", 0o644)
	if e := r.ending(id); e.Code != 5 {
		r.t.Error(e)
	}
}

func (r *rig) askedAndAnswered(place string) {
	id := "asked-" + place
	r.dispatchTo(place, id, `printf 'Apply migration? (y/n) '; read a; echo "got:$a"; test "$a" = "yes indeed"`)
	m := r.reaches(id, "hitl-required")
	question := questionID(m.RecentEvents)
	if !r.open(question) {
		r.t.Errorf("question %q is not listed", question)
	}
	if code := r.call("POST", "/api/v1/hitl/"+question+"/respond", map[string]any{"text": "yes indeed"}, nil); code != http.StatusNoContent {
		r.t.Errorf("answer: %d", code)
	}
	e := r.ending(id)
	if out := r.output(id); e.State != "done" || !bytes.HasSuffix(out, []byte("got:yes indeed\r\n")) {
		r.t.Errorf("%s: output %q", e, out)
	}
}

func (r *rig) resized(place string) {
	id := "resized-" + place
	r.dispatchTo(place, id, `trap 'seen=1; echo winch' WINCH; stty size; until [ -n "$seen" ]; do sleep 0.05; done; stty size`)
	r.reaches(id, "running")
	r.until("it has seen its terminal", func() bool { return len(r.output(id)) > 0 })
	d := websocket.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.dir, "run", "airlock.sock"))
	}}
	c, resp, err := d.Dial("ws://localhost/ws/sessions/"+escape(r.session(id))+"?write=1", nil)
	if err != nil {
		r.t.Fatalf("attach: %v %v", err, resp)
	}
	defer c.Close()
	frame, _ := json.Marshal(map[string]any{"type": "resize", "cols": 132, "rows": 43})
	if err := c.WriteMessage(websocket.TextMessage, frame); err != nil {
		r.t.Fatal(err)
	}
	e := r.ending(id)
	out := string(r.output(id))
	if e.State != "done" || !strings.HasPrefix(out, "24 80\r\n") || !strings.HasSuffix(out, "43 132\r\n") || !strings.Contains(out, "winch") {
		r.t.Errorf("%s: output %q", e, out)
	}
}
