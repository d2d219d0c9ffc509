package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// door is the host's dispatch route as the orchestrator has it: with the
// executor's token. Missions that come through it are not the orchestrator's own,
// so it is told what their events have said when it is asked for them.
type door struct {
	mu     sync.Mutex
	token  string
	states map[string]string
}

func (d *door) hooks() orchestrator.Hooks {
	return orchestrator.Hooks{Intercept: d.request, BeforeEvent: func(e orchestrator.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch e.Event {
		case "mission.completed":
			d.states[e.MissionID] = "done"
		case "mission.failed":
			d.states[e.MissionID] = "failed"
		}
	}}
}

func (d *door) request(w http.ResponseWriter, r *http.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/ws/executors/") {
		d.token = r.URL.Query().Get("token")
		return false
	}
	id, ok := strings.CutPrefix(r.URL.Path, "/api/v1/missions/load-")
	if !ok || r.Method != http.MethodGet {
		return false
	}
	id = "load-" + id
	body := map[string]string{"mission_id": id, "state": "assigned"}
	if state := d.states[id]; state != "" {
		body["state"], body["completed_at"] = state, time.Now().UTC().Format(time.RFC3339Nano)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
	return true
}

// of gives the route's URL and the token.
func (d *door) of(r *rig) (url, token string) {
	r.t.Helper()
	resp, err := http.Get(r.orc.URL() + "/api/v1/executors")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Executors []struct {
			Transport struct {
				REST string `json:"rest"`
			} `json:"transport_endpoints"`
		} `json:"executors"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Executors) != 1 {
		r.t.Fatalf("%d executors, %v", len(list.Executors), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return list.Executors[0].Transport.REST + "/dispatch", d.token
}

// The host's program is replaced while missions run and dispatches keep coming:
// none is refused or lost, none runs twice, and every mission goes on without
// having been suspended.
func TestTheHostIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	d := &door{states: map[string]string{}}
	r := newRig(t, settings{slots: 8, orc: orchestrator.Options{Hooks: d.hooks()}})
	for i := range 5 {
		r.dispatch(fmt.Sprint("before", i), fmt.Sprintf(once, fmt.Sprint("before", i), i))
		r.reaches(fmt.Sprint("before", i), "running")
	}
	// The program that takes over is another file at the same path.
	original := program
	mine := filepath.Join(r.dir, "airlock-host")
	copyProgram(t, original, mine)
	r.end(syscall.SIGTERM)
	r.startAs(mine)
	old, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	url, token := d.of(r)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sent, failed atomic.Int64
	for w := range 2 {
		wg.Go(func() {
			client := &http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d-%d", w, i)
				body, _ := json.Marshal(map[string]any{"mission_id": id, "objective": "echo x >> $PWD/" + id + ".ran", "completion": "x"})
				req, _ := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					failed.Add(1)
					return
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusAccepted {
					t.Errorf("%s: %s %s", id, resp.Status, text)
					failed.Add(1)
					return
				}
				sent.Add(1)
				if i >= 5 { // load, not a flood: a busy machine's queue would be full
					r.await(filepath.Join(r.work, fmt.Sprintf("load-%d-%d.ran", w, i-5)), stop)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	r.until("dispatches come", func() bool { return sent.Load() > 4 })
	// Twice: the second time it is not the process that was started that hands over.
	for n := range 2 {
		r.replace(mine, func(path string) { copyProgram(t, original, path) })
		r.until("the other program runs, and the process that was started has become it", func() bool {
			text := r.log.String()
			info, err := os.Stat(fmt.Sprintf("/proc/%d/exe", r.cmd.Process.Pid))
			return err == nil && !os.SameFile(info, before) && strings.Count(text, "airlock is up") >= 3+n &&
				strings.Count(text, "the host was handed over") == n+1 && len(r.servers()) == 2
		})
	}
	at := sent.Load()
	r.until("dispatches go on", func() bool { return sent.Load() > at+4 || failed.Load() > 0 })
	close(stop)
	wg.Wait()
	write(t, r.work+"/go", "", 0o644)
	for i := range 5 {
		r.checkOnce(t, fmt.Sprint("before", i), i)
	}
	var ran []string
	r.until("every accepted mission ran", func() bool {
		ran, _ = filepath.Glob(filepath.Join(r.work, "load-*.ran"))
		for _, file := range ran {
			if info, err := os.Stat(file); err != nil || info.Size() == 0 { // made, and not written yet
				return false
			}
		}
		return int64(len(ran)) == sent.Load()
	})
	for _, file := range ran {
		if text, err := os.ReadFile(file); err != nil || string(text) != "x\n" {
			t.Errorf("%s ran more than once: %q, %v", filepath.Base(file), text, err)
		}
	}
	for i := range 5 { // at the planned restart before, and not since
		kinds := r.journal(fmt.Sprint("before", i))
		if n := len(slices.DeleteFunc(kinds, func(kind string) bool { return kind != "suspended" })); n != 1 {
			t.Errorf("before%d was suspended %d times", i, n)
		}
	}
	if r.ended() {
		t.Error("the host has ended")
	}
	r.end(syscall.SIGTERM) // passed on
	r.until("nothing of it is left", func() bool { return len(r.servers()) == 0 })
}

// A program that cannot take over changes nothing.
func TestABadProgramDoesNotReplaceTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	mine := filepath.Join(r.dir, "airlock-host")
	copyProgram(t, program, mine)
	r.end(syscall.SIGTERM)
	r.startAs(mine)
	write(t, mine+".new", "#!/bin/sh\nexit 3\n", 0o755)
	if err := os.Rename(mine+".new", mine); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	r.until("it is said", func() bool { return strings.Contains(r.log.String(), "the host is not replaced") })
	r.dispatch("m", "exit 0")
	r.reaches("m", "done")
}

// Signals in any order end the host as planned, once (F24).
func TestSignalsInARow(t *testing.T) {
	t.Parallel()
	r := newRig(t, settings{})
	r.dispatch("m", "sleep 300")
	r.reaches("m", "running")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	r.end(syscall.SIGTERM)
	r.start()
	r.reaches("m", "running")
	if n := strings.Count(strings.Join(r.names("m"), " "), "mission.suspended"); n != 1 {
		t.Errorf("it was suspended %d times", n)
	}
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
}
