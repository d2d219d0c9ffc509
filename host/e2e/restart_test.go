package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func optionsWithAgentID() orchestrator.Options { return orchestrator.Options{AllowAgentID: true} }

// once is a mission with two side effects around a wait for a file.
const once = `echo a >> $PWD/%[1]s.a; while [ ! -e $PWD/go ]; do sleep 0.05; done; echo b >> $PWD/%[1]s.b; exit %[2]d`

func (r *rig) checkOnce(t *testing.T, id string, code int) {
	t.Helper()
	m := r.reaches(id, "done", "failed", "aborted")
	if m.ExitCode == nil || *m.ExitCode != code {
		t.Errorf("%s: state %s, exit code %v, error %q; want code %d", id, m.State, m.ExitCode, m.Error, code)
	}
	if a, b := r.lines(id+".a"), r.lines(id+".b"); len(a) != 1 || len(b) != 1 {
		t.Errorf("%s: its side effects happened %d and %d times", id, len(a), len(b))
	}
}

func TestAPlannedRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 3})
	for i := range 4 {
		r.dispatch(fmt.Sprint("m", i), fmt.Sprintf(once, fmt.Sprint("m", i), i))
	}
	for i := range 3 {
		r.reaches(fmt.Sprint("m", i), "running")
	}
	r.end(syscall.SIGTERM)
	for i := range 4 {
		r.reaches(fmt.Sprint("m", i), "suspended")
	}
	r.start()
	for i := range 3 {
		r.sees(fmt.Sprint("m", i), "mission.suspended", "mission.reconnected", "mission.resumed")
	}
	write(t, r.work+"/go", "", 0o644)
	for i := range 4 {
		r.checkOnce(t, fmt.Sprint("m", i), i)
	}
}

func TestAKilledHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	for i := range 10 {
		r.dispatch(fmt.Sprint("m", i), fmt.Sprintf(once, fmt.Sprint("m", i), i))
	}
	for i := range 10 {
		r.reaches(fmt.Sprint("m", i), "running")
	}
	r.end(syscall.SIGKILL)
	r.start()
	for i := range 10 {
		r.sees(fmt.Sprint("m", i), "mission.reconnected", "mission.resumed")
	}
	write(t, r.work+"/go", "", 0o644)
	for i := range 10 {
		r.checkOnce(t, fmt.Sprint("m", i), i)
	}
}

func TestMissionsThatEndWhileTheHostIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	for i := range 4 {
		r.dispatch(fmt.Sprint("m", i), fmt.Sprintf(once, fmt.Sprint("m", i), i))
		r.reaches(fmt.Sprint("m", i), "running")
	}
	r.end(syscall.SIGKILL)
	write(t, r.work+"/go", "", 0o644)
	r.until("the missions have ended by themselves", func() bool {
		return len(r.lines("m0.b"))+len(r.lines("m1.b"))+len(r.lines("m2.b"))+len(r.lines("m3.b")) == 4
	})
	r.start()
	for i := range 4 {
		r.checkOnce(t, fmt.Sprint("m", i), i)
	}
}

func TestTheOrchestratorIsAwayWhileAMissionEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", fmt.Sprintf(once, "m", 7))
	r.reaches("m", "running")
	r.orc.SetDown(true)
	write(t, r.work+"/go", "", 0o644)
	r.until("the mission has ended at the host", func() bool {
		return slices.Contains(r.journal("m"), "ended")
	})
	r.orc.SetDown(false)
	r.checkOnce(t, "m", 7)
}

func TestACrashLoopEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{agent: "governance {\n max_resumes = 2\n }"})
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	for i := range 2 {
		r.end(syscall.SIGKILL)
		r.start()
		r.until("the restart is in the journal", func() bool { return count(r.journal("m"), "reconnected") == i+1 })
	}
	if m := r.reaches("m", "running"); m.State != "running" {
		t.Fatalf("state %s", m.State)
	}
	r.end(syscall.SIGKILL)
	r.start()
	r.reaches("m", "failed")
	var view struct {
		Reason string `json:"state_reason"`
	}
	if r.call("GET", "/api/v1/missions/m", nil, &view); view.Reason != "restart_intensity_exceeded" {
		t.Errorf("reason %q", view.Reason)
	}
}

func count(list []string, what string) int {
	n := 0
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func TestAStopInTheMiddleOfStartsLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{slots: 3})
	var ids []string
	for round, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		for i := range 4 {
			id := fmt.Sprintf("r%dm%d", round, i)
			ids = append(ids, id)
			r.dispatch(id, fmt.Sprintf("echo x >> $PWD/%s; sleep 0.3; exit %d", id, i))
		}
		r.end(sig) // while cells are being made
		r.start()
	}
	for i, id := range ids {
		m := r.reaches(id, "done", "failed", "aborted")
		if m.ExitCode == nil || *m.ExitCode != i%4 || len(r.lines(id)) != 1 {
			t.Errorf("%s: state %s, exit code %v, error %q, ran %d times", id, m.State, m.ExitCode, m.Error, len(r.lines(id)))
		}
	}
}
