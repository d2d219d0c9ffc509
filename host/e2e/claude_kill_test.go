package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// killedStory is a mission with one long call in its middle. What is in the
// file NAME.go lets it end.
func killedStory(name string) string {
	return strings.ReplaceAll(`say this is NAME
bash echo before >> NAME.calls
bash echo start >> NAME.calls; until [ -e NAME.go ]; do sleep 0.1; done; echo end >> NAME.calls
bash echo after >> NAME.calls
say done`, "NAME", name)
}

// TestKillsInTheMiddleOfACall: of the CLI, of a cell agent, of the runtime's
// plugin and of the host, each while a call runs. The same session of Claude
// Code goes on, no call runs twice, and where nobody knows how one ended the
// model is told so.
func TestKillsInTheMiddleOfACall(t *testing.T) {
	t.Parallel()
	r, api := claudeRig(t, "[263300, 263399]", settings{})
	r.patience = 4 // five Claude Codes at once
	names := []string{"cli", "agent", "others"}
	for _, name := range names {
		r.claude("claude", name, killedStory(name))
	}
	r.claude("claude", "held", `say this is held
bash echo push >> held.calls
say done`)
	r.claude("claude", "refused", "error 404")
	for _, name := range names {
		r.until(name+"'s call runs", func() bool { return slices.Contains(r.rows(name+".calls"), "start") })
	}
	decision := r.pending("held", "")

	if m := r.reaches("refused", "done", "failed"); m.State != "failed" || !strings.Contains(m.Error, "the model API does not know the model or the path (404)") {
		t.Errorf("a mission whose model is not known: %s %q", m.State, m.Error)
	}

	killOne(t, r.processesOfMission("cli", func(line []byte) bool { return bytes.Contains(line, []byte("\x00-p\x00")) }))
	killOne(t, r.processesInCell("agent"))
	r.until("the two sessions have followed", func() bool {
		return slices.Contains(r.rows("cli.calls"), "after") && slices.Contains(r.rows("agent.calls"), "after")
	})

	plugin := r.pluginPids("airlock-runtime-claude-code")
	kill(plugin, syscall.SIGSTOP) // it hangs: what is approved does not run yet
	r.approve("held", decision)
	kill(plugin, syscall.SIGKILL)
	r.until("the plugin is back", func() bool {
		now := r.pluginPids("airlock-runtime-claude-code")
		return len(now) > 0 && !slices.Equal(now, plugin) && len(r.unwell()) == 0
	})
	r.end(syscall.SIGKILL)
	r.start()
	write(t, filepath.Join(r.work, "others.go"), "", 0o644)

	for _, name := range append(names, "held") {
		if m := r.reaches(name, "done", "failed", "aborted"); m.State != "done" {
			t.Errorf("mission %+v", m)
		}
		if got := claudeSessions(api, "this is "+name); len(got) != 1 {
			t.Errorf("%s was not one session of Claude Code: %v", name, got)
		}
		r.verify(name)
	}
	for name, want := range map[string][]string{
		"cli": {"before", "start", "after"}, "agent": {"before", "start", "after"}, "others": {"before", "start", "end", "after"}, "held": {"push"},
	} {
		if got := r.rows(name + ".calls"); !slices.Equal(got, want) {
			t.Errorf("%s: calls %q, want %q", name, got, want)
		}
		ran, _ := r.wholeCalls(name)
		ran = slices.DeleteFunc(ran, func(s string) bool { return !strings.HasPrefix(s, "Bash ") })
		ends := make([]string, len(want))
		for i := range ends {
			ends[i] = "Bash succeeded"
		}
		if name == "cli" || name == "agent" {
			ends[1] = "Bash outcome_unknown"
		} else if name == "others" {
			ends = ends[:3] // start and end are one call
		}
		if !slices.Equal(ran, ends) {
			t.Errorf("%s: in the journal %q, want %q", name, ran, ends)
		}
		told := false
		for _, q := range api.Requests() {
			told = told || bytes.Contains(q.Body, []byte("These calls were running")) && bytes.Contains(q.Body, []byte("- Bash: echo start >> "+name))
		}
		if lost := name == "cli" || name == "agent"; told != lost {
			t.Errorf("%s: the model was told of a call whose end is not known: %v", name, told)
		}
	}
}

func killOne(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) != 1 {
		t.Fatalf("processes to kill: %v", pids)
	}
	signal(t, pids[0], syscall.SIGKILL)
}

// processesOfMission are processes of a mission's cell whose command lines fit.
func (r *rig) processesOfMission(id string, fits func(line []byte) bool) (pids []int) {
	for _, pid := range cellPids(r.dir, false) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(env, []byte("AIRLOCK_MISSION="+id+"\x00")) && fits(line) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processesInCell are the cell agents of a mission.
func (r *rig) processesInCell(id string) (pids []int) {
	for _, pid := range cellPids(r.dir, true) {
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if slices.ContainsFunc(r.cellsOfMission(id), func(cell string) bool { return bytes.Contains(mounts, []byte("/run/cells/"+cell)) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}
