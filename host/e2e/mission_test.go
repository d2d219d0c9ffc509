package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

func escape(id string) string { return url.PathEscape(id) }

// dispatch sends a mission through the orchestrator.
func (r *rig) dispatch(id, objective string) {
	r.t.Helper()
	if code, text := r.tryDispatch(map[string]any{"mission_id": id, "objective": objective, "completion": "it exits 0"}); code != http.StatusAccepted {
		r.t.Fatalf("dispatch of %q: %d %s", id, code, text)
	}
}

func (r *rig) tryDispatch(body map[string]any) (int, string) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.Post(r.orc.URL()+"/api/v1/sessions/s1/dispatch", "application/json", bytes.NewReader(text))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(resp.Body)
	return resp.StatusCode, b.String()
}

// reaches waits until a mission is in one of the states.
func (r *rig) reaches(id string, states ...string) orchestrator.Mission {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.time())
	defer cancel()
	m, err := r.orc.Wait(ctx, id, func(m orchestrator.Mission) bool { return slices.Contains(states, m.State) })
	if err != nil {
		r.t.Fatalf("mission %q did not reach %v: %v\n%s", id, states, err, r.log)
	}
	return m
}

// sees waits until the mission's events hold these, in this order.
func (r *rig) sees(id string, events ...string) {
	r.t.Helper()
	r.until(fmt.Sprintf("mission %q has the events %v, it has %v", id, events, r.names(id)), func() bool {
		return inOrder(r.names(id), events)
	})
}

func (r *rig) names(id string) []string {
	var names []string
	for _, ev := range r.orc.Events(id) {
		names = append(names, ev.Event)
	}
	return names
}

func inOrder(have, want []string) bool {
	for _, h := range have {
		if len(want) > 0 && h == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// lines reads a file of the workspace.
func (r *rig) lines(name string) []string {
	text, err := os.ReadFile(filepath.Join(r.work, name))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// journal reads the kinds of a task's events over the API.
func (r *rig) journal(id string) []string {
	r.t.Helper()
	var kinds []string
	after := 0
	for {
		var page struct {
			Events []struct {
				Kind string `json:"kind"`
			} `json:"events"`
			Next int `json:"next"`
		}
		if code := r.call("GET", fmt.Sprintf("/tasks/%s/events?after=%d", escape(id), after), nil, &page); code != http.StatusOK {
			r.t.Fatalf("events of %q: %d", id, code)
		}
		if len(page.Events) == 0 {
			return kinds
		}
		for _, ev := range page.Events {
			kinds = append(kinds, ev.Kind)
		}
		after = page.Next
	}
}

// cellPids are the processes of this rig's cells: those in whose mounts the
// rig's directory of cells appears, but for the host's own. Zombies do not
// count. agentsOnly leaves the workloads out.
func cellPids(dir string, agentsOnly bool) []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, p := range procs {
		mounts, err := os.ReadFile(p)
		if err != nil || !bytes.Contains(mounts, []byte(dir+"/run/cells/")) {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
		if err != nil || agentsOnly && !bytes.HasPrefix(cmd, []byte("airlock-cell\x00serve")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(p), "stat"))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(p, "/proc/%d/mountinfo", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pluginPids finds the processes of a plugin below the host.
func (r *rig) pluginPids(name string) []int {
	var pids []int
	procs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range procs {
		var pid, ppid int
		var comm, state string
		stat, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(string(stat), "%d %s %s %d", &pid, &comm, &state, &ppid); err != nil || ppid != r.cmd.Process.Pid {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
		if err == nil && strings.Contains(string(cmd), name) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}
