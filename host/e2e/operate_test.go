package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writer appends to a file for ever, from a child that has escaped twice too.
const writer = `trap '' TERM HUP INT
(setsid sh -c 'trap "" TERM; while :; do echo x >> $PWD/child; sleep 0.01; done' &) 
while :; do echo x >> $PWD/main; sleep 0.01; done`

func (r *rig) size(name string) int64 {
	st, err := os.Stat(filepath.Join(r.work, name))
	if err != nil {
		return 0
	}
	return st.Size()
}

// still says that neither file of the writer grows.
func (r *rig) still() bool {
	a, b := r.size("main"), r.size("child")
	time.Sleep(100 * time.Millisecond) // ten rounds of the writer
	return a == r.size("main") && b == r.size("child")
}

func TestAbortMeansDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", writer)
	r.until("both writers write", func() bool { return r.size("main") > 0 && r.size("child") > 0 })
	resp, err := http.Post(r.orc.URL()+"/api/v1/missions/m/abort", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.sees("m", "mission.aborted")
	main, child := r.size("main"), r.size("child")
	if !r.still() || main != r.size("main") || child != r.size("child") {
		t.Error("something of the mission runs after mission.aborted")
	}
	r.until("the stop is acknowledged", func() bool {
		return inOrder(r.journal("m"), []string{"stop", "stop_acknowledged", "ended"})
	})
}

func TestPauseFreezes(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", writer)
	r.until("both writers write", func() bool { return r.size("main") > 0 && r.size("child") > 0 })
	post := func(what string) {
		t.Helper()
		resp, err := http.Post(r.orc.URL()+"/api/v1/missions/m/"+what, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	post("pause")
	r.sees("m", "mission.paused")
	if !r.still() {
		t.Error("something of the mission runs while it is paused")
	}
	// A pause survives a killed host.
	r.end(syscall.SIGKILL)
	r.start()
	r.reaches("m", "paused")
	if !r.still() {
		t.Error("something of the mission runs after the restart of the host")
	}
	post("resume")
	r.sees("m", "mission.paused", "mission.resumed")
	before := r.size("main")
	r.until("it writes again", func() bool { return r.size("main") > before })
	if code := r.call("POST", "/api/v1/missions/m/pause", map[string]any{"reason": "by hand"}, nil); code/100 != 2 {
		t.Errorf("pause: %d", code)
	}
	if code := r.call("POST", "/api/v1/missions/m/abort", map[string]any{}, nil); code/100 != 2 {
		t.Errorf("abort of a paused mission: %d", code)
	}
	r.reaches("m", "aborted")
}

const prompts = `prompts = ["\\(y/n\\)\\s*$"]`

func TestAQuestionAtTheTerminal(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{runtime: prompts})
	r.dispatch("m", `printf 'Apply migration? (y/n) '; read a; echo "got:$a"; test "$a" = yes`)
	m := r.reaches("m", "hitl-required")
	id := questionID(m.RecentEvents)
	if code := r.call("POST", "/api/v1/hitl/"+id+"x/respond", map[string]any{"text": "no"}, nil); code != http.StatusNotFound {
		t.Errorf("unknown question: %d", code)
	}
	// It survives a restart, under the same id.
	r.end(syscall.SIGKILL)
	r.start()
	r.until("the question is open again", func() bool { return r.open(id) })
	body := fmt.Sprintf(`{"hitl_id":%q,"response":"yes"}`, id)
	resp, err := http.Post(r.orc.URL()+"/api/v1/missions/m/hitl_response", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r.sees("m", "mission.hitl_required", "mission.resumed", "mission.completed")
	if code := r.call("POST", "/api/v1/hitl/"+id+"/respond", map[string]any{"text": "no"}, nil); code != http.StatusNotFound && code != http.StatusConflict {
		t.Errorf("second answer: %d", code)
	}
}

func (r *rig) open(id string) bool {
	var list struct {
		Questions []struct {
			ID string `json:"hitl_id"`
		} `json:"questions"`
		HITL []struct {
			ID string `json:"hitl_id"`
		} `json:"hitl"`
	}
	if r.call("GET", "/api/v1/hitl", nil, &list) != http.StatusOK {
		return false
	}
	for _, q := range append(list.Questions, list.HITL...) {
		if q.ID == id {
			return true
		}
	}
	return false
}

func TestAProcessAsksAHuman(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", `a=$(airlock-cell ask --context "47 rows" "Go on?") && echo "$a" > $PWD/answer && test "$a" = sure`)
	m := r.reaches("m", "hitl-required")
	id := questionID(m.RecentEvents)
	if code := r.call("POST", "/api/v1/hitl/"+id+"/respond", map[string]any{"text": "sure"}, nil); code != http.StatusNoContent {
		t.Errorf("answer: %d", code)
	}
	if m := r.reaches("m", "done", "failed"); m.State != "done" {
		t.Errorf("state %s, error %q", m.State, m.Error)
	}
	if got := r.lines("answer"); len(got) != 1 || got[0] != "sure" {
		t.Errorf("the asking process got %q", got)
	}
}

func TestAPausedMissionThatWaitsHoldsNoSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 1})
	r.dispatch("first", "while [ ! -e $PWD/go ]; do sleep 0.05; done")
	r.reaches("first", "running")
	r.dispatch("held", "true")
	if code := r.call("POST", "/api/v1/missions/held/pause", map[string]any{}, nil); code/100 != 2 {
		t.Fatalf("pause: %d", code)
	}
	r.dispatch("after", "true")
	write(t, r.work+"/go", "", 0o644)
	r.reaches("after", "done")
	if m := r.reaches("held", "paused"); m.State != "paused" {
		t.Errorf("held: %s", m.State)
	}
	if code := r.call("POST", "/api/v1/missions/held/resume", map[string]any{}, nil); code/100 != 2 {
		t.Errorf("resume: %d", code)
	}
	r.reaches("held", "done")
}
