package e2e

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"
)

// repairReport is what the tests read of `journal repair --json`.
type repairReport struct {
	Fault     string `json:"fault"`
	CutAfter  uint64 `json:"cut_after"`
	CutEvents int    `json:"cut_events"`
	Trusted   uint64 `json:"trusted"`
	Done      bool   `json:"done"`
	Sequence  uint64 `json:"sequence"`
	Kept      string `json:"kept"`
	State     string `json:"state"`
}

func (r *rig) repair(task string, args ...string) (rep repairReport, code int, said string) {
	r.t.Helper()
	cmd := exec.Command(program, append([]string{"journal", "repair", task, "--json", "--config", r.conf}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code says it
	if err := json.Unmarshal([]byte(out.String()), &rep); err != nil && out.Len() > 0 {
		r.t.Fatalf("repair: %v\n%s%s", err, out.String(), errs.String())
	}
	return rep, cmd.ProcessState.ExitCode(), errs.String()
}

// tamper changes the store of a host that is stopped.
func (r *rig) tamper(query string, args ...any) {
	r.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(r.dir, "data", "missions.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	res, err := db.Exec(query, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		r.t.Fatalf("%s changed %d rows: %v", query, n, err)
	}
}

func (r *rig) lastSequence() (seq int64) {
	r.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(r.dir, "data", "missions.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT max(seq) FROM events").Scan(&seq); err != nil {
		r.t.Fatal(err)
	}
	return seq
}

// shown is the state that the host itself shows of a mission.
func (r *rig) shown(id string) string {
	var m struct {
		State string `json:"state"`
	}
	r.call(http.MethodGet, "/api/v1/missions/"+id, nil, &m)
	return m.State
}

// oldHeads puts the file of heads of before the last events in the place of the
// new one, as if the machine had died before they were signed.
func (r *rig) oldHeads(keep int) {
	r.t.Helper()
	file := filepath.Join(r.dir, "heads", "heads.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	write(r.t, file, strings.Join(lines[:min(keep, len(lines))], ""), 0o600)
}

// a host with one mission that lives, stopped by kill -9.
func damagedRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, settings{})
	r.give(map[string]any{"mission_id": "m", "executor_filter": map[string]any{}, "completion": "x", "objective": "sleep 1000"})
	r.reaches("m", "running")
	r.end(syscall.SIGKILL)
	return r
}

// TestATornRecordIsCutByRepairOnly: the last record is torn or one bit of it is
// other; the host quarantines the task and names the way out, repair shows
// first and then cuts, and the host takes the task up, waiting for an explicit
// restart.
func TestATornRecordIsCutByRepairOnly(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"torn":        "UPDATE events SET payload = substr(payload, 1, length(payload) - 3) WHERE seq = ?",
		"flipped bit": "UPDATE events SET payload = substr(payload, 1, 5) || char(unicode(substr(payload, 6, 1)) + 1) || substr(payload, 7) WHERE seq = ?",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := damagedRig(t)
			last := r.lastSequence()
			r.oldHeads(1)
			r.tamper(query, last)
			if rep, code, said := r.repair("m"); code != 0 || rep.Done || rep.CutAfter != uint64(last-1) || rep.CutEvents != 1 || !strings.Contains(rep.Fault, `task "m"`) || !strings.Contains(rep.Fault, "sequence") {
				t.Fatalf("what would be done: %d %+v\n%s", code, rep, said)
			}
			r.start()
			if log := r.log.String(); !strings.Contains(log, "is quarantined") || !strings.Contains(log, "sequence") {
				t.Error("the damaged task is not quarantined, or the log does not say where")
			}
			r.readsAround(last)
			if _, code, said := r.repair("m", "--yes"); code != 3 || !strings.Contains(said, "stopped") {
				t.Errorf("beside a running host: %d %s", code, said)
			}
			r.end(syscall.SIGTERM)
			rep, code, said := r.repair("m", "--yes", "--reason", "disk")
			if code != 0 || !rep.Done || rep.CutEvents != 1 || rep.Sequence < uint64(last) {
				t.Fatalf("repair: %d %+v\n%s", code, rep, said)
			}
			if text, err := os.ReadFile(rep.Kept); err != nil || !strings.Contains(string(text), `"task_id":"m"`) {
				t.Errorf("what was cut: %s %v", text, err)
			}
			if _, code, said := r.repair("m", "--yes"); code != 3 || !strings.Contains(said, "verifies") {
				t.Errorf("a right journal is repaired again: %d %s", code, said)
			}
			r.start()
			r.verify("m")
			r.until("the host takes the task up", func() bool { return r.shown("m") == "paused" })
			if code, a := r.send("/tasks/m/control", map[string]any{"action": "restart"}); code != http.StatusOK {
				t.Fatalf("restart: %d %v", code, a)
			}
			r.reaches("m", "running")
			r.verify("m")
		})
	}
}

// TestRepairNeverCutsBelowTheSignedHead: records that a signed head covers are
// gone; nothing may make that good but the right copy.
func TestRepairNeverCutsBelowTheSignedHead(t *testing.T) {
	t.Parallel()
	r := damagedRig(t)
	putBack := r.copyStore()
	last := r.lastSequence()
	r.tamper("UPDATE tasks SET head_seq = ?, head_digest = (SELECT digest FROM events WHERE seq = ?)", last-2, last-2)
	r.tamper("DELETE FROM events WHERE seq > ?", last-2)
	rep, code, said := r.repair("m", "--yes")
	if code != 3 || rep.Done || !strings.Contains(said, "trusted head") {
		t.Fatalf("repair: %d %+v\n%s", code, rep, said)
	}
	if got := r.lastSequence(); got != last-2 {
		t.Errorf("something was changed: the last event is %d", got)
	}
	if _, code, said := r.repair("other"); code != 2 {
		t.Errorf("a task that is not there: %d %s", code, said)
	}
	putBack()
	r.start()
	r.reaches("m", "running")
	r.verify("m")
}

// copyStore copies the store of a host that is stopped; putBack puts it back.
func (r *rig) copyStore() (putBack func()) {
	r.t.Helper()
	match := filepath.Join(r.dir, "data", "missions.db*")
	files, err := filepath.Glob(match)
	if err != nil || len(files) == 0 {
		r.t.Fatalf("no store: %v", err)
	}
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		texts[f] = string(text)
	}
	return func() {
		now, err := filepath.Glob(match)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range now {
			if err := os.Remove(f); err != nil {
				r.t.Fatal(err)
			}
		}
		for f, text := range texts {
			write(r.t, f, text, 0o600)
		}
	}
}

// readsAround reads the journal of m, whose event bad is damaged: the page, the
// stream and the command give all of it, and name that one.
func (r *rig) readsAround(bad int64) {
	r.t.Helper()
	var page struct {
		Events []struct {
			Sequence int64
			Damaged  string
		}
	}
	if code := r.call(http.MethodGet, "/tasks/m/events", nil, &page); code != http.StatusOK || int64(len(page.Events)) != bad {
		r.t.Errorf("the events: %d, %d of %d", code, len(page.Events), bad)
	}
	for _, ev := range page.Events {
		if (ev.Damaged != "") != (ev.Sequence == bad) {
			r.t.Errorf("event %d: damaged %q", ev.Sequence, ev.Damaged)
		}
	}
	req, err := http.NewRequest(http.MethodGet, "http://localhost/tasks/m/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := r.api.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	in, seen := bufio.NewScanner(resp.Body), int64(0)
	in.Buffer(nil, 1<<20)
	for seen < bad && in.Scan() {
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			if seen++; strings.Contains(data, `"damaged":`) != (seen == bad) {
				r.t.Errorf("event %d of the stream: %s", seen, data)
			}
		}
	}
	if seen != bad {
		r.t.Errorf("the stream ended after %d events: %v", seen, in.Err())
	}
	cmd := exec.Command(program, "journal", "events", "m")
	cmd.Env = append(os.Environ(), "AIRLOCK_ADDR="+filepath.Join(r.dir, "run", "airlock.sock"))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "DAMAGED: ") != 1 || int64(strings.Count(string(out), "\n")) < bad {
		r.t.Errorf("airlock journal events: %v\n%s", err, out)
	}
}
