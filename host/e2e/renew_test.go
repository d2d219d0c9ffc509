package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// puttingOff is an agent's script: a call that waits for a human is put off, and
// the session ends. Each session leaves a line in the workspace.
const puttingOff = `ask() { echo "PROPOSE $1 $2 $3"; read word id rest; echo "$word:$1:$rest" >> answers
case "$word:$rest" in
GO:*) echo "$1:$rest" >> effects; echo "DONE $1 ok";;
NO:DECISION_PAUSE*) echo "DEFER $1"; exit 0;;
esac; }
echo "session:$KEPT:$WHY:$LOST" >> sessions
`

func renewRig(t *testing.T, governance, agent string, more ...string) *rig {
	t.Helper()
	dir, err := protocolPlugins()
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, settings{plugins: dir, policy: policyRules, governance: governance, extra: `
runtime "protocol" "asks" {
  config {}
}
agent "governed" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.protocol.asks
  slots     = 1
  workspace {
    source = "{{work}}"
    mode   = "read-write"
  }
  ` + agent + `
}
` + strings.Join(more, "\n")})
}

const pausedPushes = `
  approval_hold = "200ms"
  approve {
    rule "pushes" {
      tool = "Push"
    }
  }
`

func (r *rig) governed(id, script string) {
	r.t.Helper()
	r.give(map[string]any{"mission_id": id, "executor_filter": map[string]any{"capabilities": []string{"runtime:custom:protocol"}}, "completion": "x", "objective": script})
}

// rows reads a file of the workspace line by line.
func (r *rig) rows(name string) []string {
	text, err := os.ReadFile(filepath.Join(r.work, name))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

// asked is a question that waits.
type asked struct {
	HITLID  string `json:"hitl_id"`
	Mission string `json:"mission_id"`
	Prompt  string `json:"prompt"`
	Context string `json:"context"`
}

// question waits for the question of a mission.
func (r *rig) question(id string) (q asked) {
	r.t.Helper()
	r.until("a question waits", func() bool {
		var list struct {
			Questions []asked `json:"questions"`
		}
		r.call(http.MethodGet, "/api/v1/hitl", nil, &list)
		for _, a := range list.Questions {
			if a.Mission == id {
				q = a
			}
		}
		return q.HITLID != ""
	})
	return q
}

// parked waits until a mission waits without a cell.
func (r *rig) parked(id string) {
	r.t.Helper()
	r.until("the mission waits without a cell", func() bool {
		return r.view(id).State == "hitl-required" && len(cellPids(r.dir, false)) == 0
	})
}

func TestADeferredCallIsDecidedWithoutASession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		killWaiting, killDecided syscall.Signal
	}{
		"the host stays":                        {},
		"the host is killed while it waits":     {killWaiting: syscall.SIGKILL},
		"the host is restarted while it waits":  {killWaiting: syscall.SIGTERM},
		"the host is killed after the approval": {killDecided: syscall.SIGKILL},
		"the host is killed twice":              {killWaiting: syscall.SIGKILL, killDecided: syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := renewRig(t, pausedPushes, "")
			r.governed("m", puttingOff+`
if [ -f one ]; then cat "$AIRLOCK_STATE/note" >> sessions; ls "$AIRLOCK_TMP" | wc -l >> sessions; else
ask 1 Write '{}'; touch one; echo noted > "$AIRLOCK_STATE/note"; touch "$AIRLOCK_TMP/x"; echo "KEEP at two"; fi
ask 2 Push '{"b":"main"}'
ask 3 Write '{}'
`)
			d := r.pending("m", "")
			r.parked("m")
			// The slot is free meanwhile.
			r.governed("other", "exit 0")
			r.reaches("other", "done", "failed", "aborted")
			if c.killWaiting != 0 {
				r.end(c.killWaiting)
				r.start()
				d = r.pending("m", d)
			}
			if got := r.rows("effects"); !slices.Equal(got, []string{"1:{}"}) {
				t.Errorf("before the approval ran %q", got)
			}
			if code, a := r.send("/tasks/m/approval", map[string]any{"decision_id": d, "action": "approve_once"}); code != http.StatusOK || a["status"] != "ALLOW" {
				t.Fatalf("approval: %d %v", code, a)
			}
			if c.killDecided != 0 {
				r.end(c.killDecided)
				r.start()
			}
			if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
				t.Fatalf("mission %+v", m)
			}
			if got := r.rows("effects"); !slices.Equal(got, []string{"1:{}", `2:{"b":"main"}`, "3:{}"}) {
				t.Errorf("effects %q", got)
			}
			if s := r.task("m"); len(s.Pending) != 0 || len(s.Running) != 0 {
				t.Errorf("left open: %+v", s)
			}
			got := r.rows("sessions")
			if len(got) != 4 || got[0] != "session:::" || !strings.HasPrefix(got[1], "session:at two:") || got[2] != "noted" || got[3] != "0" {
				t.Errorf("sessions %q", got)
			}
			r.verify("m")
			r.untilNoVolumes()
		})
	}
}

// untilNoVolumes waits until nothing of ended missions is left in data_dir/volumes.
func (r *rig) untilNoVolumes() {
	r.t.Helper()
	r.until("the volumes are gone", func() bool {
		left, err := os.ReadDir(filepath.Join(r.dir, "data", "volumes"))
		return err == nil && len(left) == 0
	})
}

func TestAHumansNoOutlivesTheSession(t *testing.T) {
	t.Parallel()
	r := renewRig(t, pausedPushes, "")
	r.governed("m", puttingOff+"ask 1 Push '{}'\nask 2 Write '{}'")
	d := r.pending("m", "")
	r.parked("m")
	if code, a := r.send("/tasks/m/approval", map[string]any{"decision_id": d, "action": "reject", "explanation": "not today"}); code != http.StatusOK {
		t.Fatalf("rejection: %d %v", code, a)
	}
	r.end(syscall.SIGKILL)
	r.start()
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.rows("effects"); !slices.Equal(got, []string{"2:{}"}) {
		t.Errorf("effects %q", got)
	}
	if got := r.rows("answers"); len(got) != 3 || !strings.Contains(got[1], "not today") {
		t.Errorf("answers %q", got)
	}
}

func TestADeferredCallExpires(t *testing.T) {
	t.Parallel()
	r := renewRig(t, pausedPushes+"\n approval_timeout = \"3s\"\n", "")
	r.governed("m", puttingOff+"ask 1 Push '{}'\nask 2 Write '{}'")
	r.pending("m", "")
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
		t.Fatalf("mission %+v", m)
	}
	if got := r.rows("effects"); !slices.Equal(got, []string{"2:{}"}) {
		t.Errorf("effects %q", got)
	}
	if got := r.rows("answers"); len(got) != 3 || !strings.Contains(got[1], "DECISION_REPLAN") {
		t.Errorf("answers %q", got)
	}
}

func TestAMissionBetweenSessionsCanBeHeldAndStopped(t *testing.T) {
	t.Parallel()
	r := renewRig(t, pausedPushes, "")
	r.governed("m", puttingOff+"ask 1 Push '{}'\n")
	d := r.pending("m", "")
	r.parked("m")
	if code, a := r.send("/tasks/m/control", map[string]any{"action": "pause"}); code != http.StatusOK {
		t.Fatalf("pause: %d %v", code, a)
	}
	d = r.pending("m", d)
	if code, _ := r.send("/tasks/m/approval", map[string]any{"decision_id": d, "action": "approve_once"}); code != http.StatusOK {
		t.Errorf("approval while it is paused: %d", code)
	}
	if got := r.rows("sessions"); len(got) != 1 {
		t.Errorf("sessions of a paused mission %q", got)
	}
	code, receipt := r.send("/tasks/m/control?wait=30", map[string]any{"action": "stop", "reason": "enough"})
	if iso, _ := receipt["isolation"].(map[string]any); code != http.StatusOK || receipt["final"] != true || iso["result"] != "no_session" {
		t.Errorf("stop: %d %v", code, receipt)
	}
	if m := r.reaches("m", "done", "failed", "aborted"); m.State != "aborted" {
		t.Errorf("mission %+v", m)
	}
	if got := r.rows("effects"); got != nil {
		t.Errorf("ran %q", got)
	}
	r.verify("m")
	r.untilNoVolumes()
}

func TestASessionThatDiesIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig){
		"the agent dies":             nil,
		"its cell dies":              func(r *rig) { r.killCells() },
		"its cell and the host die":  func(r *rig) { r.end(syscall.SIGKILL); r.killCells(); r.start() },
		"its plugin and it die":      func(r *rig) { kill(r.pluginPids("airlock-runtime-protocol"), syscall.SIGKILL); r.killAgent() },
		"the host and then it die":   func(r *rig) { r.end(syscall.SIGKILL); r.killAgent(); r.start() },
		"it dies, and then the host": func(r *rig) { r.killAgent(); r.end(syscall.SIGKILL); r.start() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := renewRig(t, "", "")
			die := `echo $$ > "$AIRLOCK_STATE/pid"; touch here; sleep 600`
			if end == nil {
				die = "kill -9 $$"
			}
			r.governed("m", puttingOff+`
if [ -z "$KEPT" ]; then
  echo "KEEP going"
  ask 1 Write '{}'
  echo 'PROPOSE 2 Write {}'; read word id rest; echo "2:$rest" >> effects
  `+die+`
fi
ask 2 Write '{}'
ask 3 Write '{}'
`)
			if end != nil {
				r.until("the call runs", func() bool { _, err := os.Stat(filepath.Join(r.work, "here")); return err == nil })
				end(r)
			}
			if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
				t.Fatalf("mission %+v", m)
			}
			if got := r.rows("effects"); !slices.Equal(got, []string{"1:{}", "2:{}", "3:{}"}) {
				t.Errorf("effects %q", got)
			}
			got := r.rows("sessions")
			if len(got) != 2 || !strings.HasPrefix(got[1], "session:going:") || !strings.HasSuffix(got[1], ":2") {
				t.Errorf("the second session was told %q", got)
			}
			if got := r.rows("answers"); !slices.ContainsFunc(got, func(l string) bool { return strings.HasPrefix(l, "NO:2:consumed") }) {
				t.Errorf("the call that was lost came again and was answered %q", got)
			}
			r.verify("m")
		})
	}
}

// killAgent kills the agent's own process, whose pid it has written down.
func (r *rig) killAgent() {
	r.t.Helper()
	n := 0
	for _, pid := range cellPids(r.dir, false) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(text), "/bin/sh\x00-c\x00ask()") {
			n++
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				r.t.Errorf("kill the agent: %v", err)
			}
		}
	}
	if n == 0 {
		r.t.Error("no process of the agent was found")
	}
}

func TestSessionsThatGetNowhereEndTheMission(t *testing.T) {
	t.Parallel()
	r := renewRig(t, "", "governance {\n max_resumes = 2\n }")
	r.governed("m", puttingOff+"echo KEEP trying\nexit 3")
	r.reaches("m", "done", "failed", "aborted")
	if m := r.view("m"); m.State != "failed" || m.StateReason != "restart_intensity_exceeded" {
		t.Errorf("mission %+v", m)
	}
	if got := r.rows("sessions"); len(got) != 3 {
		t.Errorf("sessions %q", got)
	}
}

func TestAQuestionIsAnsweredByAMessage(t *testing.T) {
	t.Parallel()
	const question = `
echo 'ASK q1 Which color?|Red|Blue'
read word id rest; echo "$word:$id:$rest" >> answers
`
	for name, c := range map[string]struct {
		script string
		before func(r *rig)
		after  func(r *rig)
	}{
		"at once":                       {question, nil, nil},
		"over a restart":                {question, func(r *rig) { r.end(syscall.SIGKILL); r.start() }, nil},
		"while the plugin is away":      {question, func(r *rig) { kill(r.pluginPids("airlock-runtime-protocol"), syscall.SIGKILL) }, nil},
		"and then the host is killed":   {"echo 'ASK q1 Which color?|Red|Blue'\n[ -f once ] || { touch once; echo LATER; exit 0; }\n" + `read word id rest; echo "$word:$id:$rest" >> answers`, func(r *rig) { r.parked("m") }, func(r *rig) { r.end(syscall.SIGKILL); r.start() }},
		"while no session is there":     {"echo 'ASK q1 Which color?|Red|Blue'\n[ -f once ] || { touch once; echo LATER; exit 0; }\n" + `read word id rest; echo "$word:$id:$rest" >> answers`, func(r *rig) { r.parked("m") }, nil},
		"by the orchestrator's console": {question, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := renewRig(t, "", "")
			r.governed("m", puttingOff+c.script)
			q := r.question("m")
			if !strings.Contains(q.Prompt, "Red | Blue") {
				t.Errorf("prompt %q", q.Prompt)
			}
			if c.before != nil {
				c.before(r)
			}
			if name == "by the orchestrator's console" {
				resp, err := http.Post(r.orc.URL()+"/api/v1/missions/m/hitl_response", "application/json",
					strings.NewReader(fmt.Sprintf(`{"hitl_id":%q,"response":"Blue"}`, q.HITLID)))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			} else if code := r.call(http.MethodPost, "/api/v1/hitl/"+q.HITLID+"/respond", map[string]any{"text": "Blue"}, nil); code != http.StatusNoContent {
				t.Fatalf("answer: %d", code)
			}
			if c.after != nil {
				c.after(r)
			}
			if m := r.reaches("m", "done", "failed", "aborted"); m.State != "done" {
				t.Fatalf("mission %+v", m)
			}
			if got := r.rows("answers"); !slices.Equal(got, []string{"ANSWER:q1:Blue"}) {
				t.Errorf("the agent read %q", got)
			}
			r.verify("m")
		})
	}
}

func TestAStopInterruptsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"an agent that lets go": {"read word; echo STOPPED; sleep 600", "done"},
		"a deaf agent":          {"sleep 600", "not answered within 250ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := renewRig(t, "", "")
			var names []string
			var result string
			// On a busy machine 250 ms may be over before an agent has let go.
			for i := 0; i < 5 && result != c.want; i++ {
				id, file := fmt.Sprintf("m%d", i), fmt.Sprintf("effects%d", i)
				r.governed(id, puttingOff+"ask 1 Write '{}'; touch "+file+"\n"+c.script)
				r.until("the agent runs", func() bool { _, err := os.Stat(filepath.Join(r.work, file)); return err == nil })
				_, receipt := r.send("/tasks/"+id+"/control?wait=30", map[string]any{"action": "stop", "reason": "enough"})
				rungs, _ := receipt["rungs"].([]any)
				names = nil
				for _, x := range rungs {
					g, _ := x.(map[string]any)
					n, _ := g["name"].(string)
					if names = append(names, n); n == "interrupt" {
						result, _ = g["result"].(string)
					}
				}
				if i, f := slices.Index(names, "interrupt"), slices.Index(names, "freeze"); i < 0 || f < i {
					t.Errorf("order of rungs %v", names)
				}
				r.reaches(id, "aborted")
			}
			if result != c.want {
				t.Errorf("rungs %v, interrupt %q, want %q", names, result, c.want)
			}
		})
	}
}
