package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/api/apitest"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestMissionsFromDispatchToTheEnd(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	sh.run("mission", "list").want(t, 0).has(t, "airlock mission dispatch")
	sh.run("mission", "list", "--agent", "nope").want(t, 0).has(t, `no missions of agent "nope"`, "there is no agent of this name", "agent-01")
	if got := sh.run("mission", "list", "--agent", "agent-01").want(t, 0); strings.Contains(got.out, "there is no agent") {
		t.Errorf("an agent that is there: %s", got.out)
	}
	if got := sh.run("mission", "dispatch", "echo hello", "--id", "a/../b", "--agent", "agent-01").want(t, 0); got.out != "a/../b\n" {
		t.Errorf("dispatch printed %q", got.out)
	}
	sh.run("mission", "dispatch", "echo hello", "--id", "a/../b", "--agent", "agent-01").want(t, 0).has(t, "nothing was started")
	sh.run("mission", "dispatch", "other", "--id", "a/../b").want(t, ExitConflict).has(t, "something else")
	for _, id := range []string{".", "..", strings.Repeat("😀", 300)} {
		sh.run("mission", "dispatch", "x", "--id", id).want(t, 0)
		if got := sh.run("mission", "show", id, "--json").want(t, 0).object(t); got["mission_id"] != id {
			t.Errorf("show %q = %v", id, got["mission_id"])
		}
		sh.run("status", id).want(t, 0).has(t, "running")
	}
	sh.run("mission", "list", "--live", "--limit", "2").want(t, 0).has(t, "MISSION", "OBJECTIVE", "there are more")
	if got := sh.run("mission", "list", "--all", "--json").want(t, 0).object(t); len(got["missions"].([]any)) != 4 {
		t.Errorf("list = %v", got)
	}
	sh.run("mission", "pause", "a/../b", "--reason", "lunch").want(t, 0).has(t, "a/../b is paused")
	sh.run("mission", "resume", "a/../b").want(t, 0).has(t, "is running")
	sh.run("mission", "resume", "a/../b").want(t, ExitConflict)
	sh.run("mission", "kill", "a/../b", "--signal", "INT").want(t, 0)
	if got := h.Engine.Live("a/../b").Signals(); len(got) != 1 || got[0] != 2 {
		t.Errorf("signals = %v", got)
	}
	sh.run("mission", "kill", "a/../b", "--signal", "SEGV").want(t, ExitFailed).has(t, "signal")
	sh.run("mission", "kill", "a/../b", "--wait").want(t, 0).has(t, "is aborted, nothing of it runs")
	sh.run("mission", "kill", "a/../b").want(t, ExitConflict)
	sh.run("mission", "show", "a/../b").want(t, 0).has(t, "aborted")
}

func TestDispatchWaitsAndPassesTheOutcomeOn(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	for id, code := range map[string]int{"good": 0, "bad": 3} {
		done := make(chan result, 1)
		go func() { done <- sh.run("mission", "dispatch", "x", "--id", id, "--follow", "--json") }()
		eventually(t, "the mission", func() bool { _, err := h.Engine.Mission(t.Context(), id); return err == nil })
		if err := h.Engine.Live(id).Print("out of " + id + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := h.Engine.End(id, code); err != nil {
			t.Fatal(err)
		}
		r := <-done
		want := ExitOK
		if code != 0 {
			want = ExitFailed
		}
		r.want(t, want).has(t, "out of "+id+"\n", "mission "+id+"\n", `"exit_code"`)
	}
	sh.run("mission", "dispatch", "x", "--id", "slow", "--wait", "--timeout", "50ms").want(t, ExitTimedOut).has(t, "airlock status slow")
}

func TestDispatchFromFiles(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	dir := t.TempDir()
	file := filepath.Join(dir, "mission.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"mission_id":"f1","objective":"from file","executor_filter":{"executor_id":null,"agent_id":"agent-02","capabilities":[]},"metadata":{"n":12345678901234567890}}`)
	sh.run("mission", "dispatch", "-f", file).want(t, 0)
	if v, err := h.Engine.Mission(t.Context(), "f1"); err != nil || v.Agent != "agent-02" || v.Objective != "from file" {
		t.Errorf("mission = %+v, %v", v, err)
	}
	sh.run("mission", "dispatch", "flag wins", "--file", file, "--id", "f2").want(t, 0)
	if v, err := h.Engine.Mission(t.Context(), "f2"); err != nil || v.Objective != "flag wins" {
		t.Errorf("mission = %+v, %v", v, err)
	}
	write(`{"objective":"x","priority":1}`)
	sh.run("mission", "dispatch", "--file", file).want(t, ExitFailed).has(t, "priority")
	write(`[]`)
	sh.run("mission", "dispatch", "--file", file).want(t, ExitFailed).has(t, "not a JSON object")
	sh.run("mission", "dispatch").want(t, ExitFailed).has(t, "echo hello")
	sh.run("mission", "dispatch", "x", "--metadata", filepath.Join(dir, "none")).want(t, ExitFailed)
	sh.run("mission", "dispatch", "x", "--agent", "nobody").want(t, ExitNotFound).has(t, "nobody")
}

func TestQuestionsAndControl(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	sh.run("hitl", "list").want(t, 0).has(t, "nobody waits")
	h.Mission(t, "m1", "agent-01")
	if err := h.Engine.Ask("m1", "q/1", "really?\x1b]0;owned\x07 (y/n)"); err != nil {
		t.Fatal(err)
	}
	r := sh.run("hitl", "list").want(t, 0).has(t, "q/1", "really?")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("an escape sequence got through: %q", r.out)
	}
	sh.run("status", "m1").want(t, 0).has(t, "airlock hitl respond q/1 TEXT", "gate          RUNNING")
	sh.run("hitl", "respond", "none", "y").want(t, ExitNotFound)
	sh.run("hitl", "respond", "q/1", "yes").want(t, 0)
	sh.run("hitl", "respond", "q/1", "no").want(t, ExitConflict)
	if got := h.Engine.Live("m1").Typed(); got != "yes\n" {
		t.Errorf("typed %q", got)
	}
	sh.run("control", "pause", "m1").want(t, 0).has(t, "m1 is paused")
	sidecar := sh.with("SIDECAR_ENDPOINT", h.REST+"/tasks/m1").with("AIRLOCK_ADDR", "").with("AIRLOCK_TOKEN", "").with("SIDECAR_OPERATOR_TOKEN", apitest.AliceToken)
	sidecar.run("control", "resume").want(t, 0).has(t, "m1 is running")
	sidecar.run("status").want(t, 0).has(t, "echo m1")
	sidecar.run("control", "replan").want(t, 0).has(t, "m1 is paused")
	sidecar.run("control", "stop", "--reason", "enough").want(t, 0).has(t, "stop-m1", "nothing was revoked anywhere")
	sh.run("control", "restart", "m1").want(t, ExitConflict).has(t, "ended")
	sh.run("control", "pause").want(t, ExitFailed).has(t, "SIDECAR_ENDPOINT")
	sh.run("control", "pause", "none").want(t, ExitNotFound).has(t, `"none"`)
	sh.run("control", "dance").want(t, ExitFailed).has(t, "dance", "airlock control --help")
	sh.run("control", "pasue").want(t, ExitFailed).has(t, "Did you mean this?", "pause")
	sh.run("mision").want(t, ExitFailed).has(t, "Did you mean this?", "mission")
	sh.run("control").want(t, 0).has(t, "restart", "replan")
}

func TestStatusOfTheHost(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	sh := alice(t, h)
	sh.run("status").want(t, 0).has(t, h.REST, "ready         yes", "not configured", "1 have not ended", "agent-02", "docker is not reachable")
	got := sh.run("status", "--json").want(t, 0).object(t)
	for _, key := range []string{"version", "ready", "agents", "plugins", "orchestrator", "missions", "questions"} {
		if got[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	sh.run("status", "none").want(t, ExitNotFound).has(t, `there is no task "none"`)
}

func TestStatusFollowsTheHost(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	done := make(chan int, 1)
	go func() { done <- alice(t, h).start(ctx, strings.NewReader(""), &out, &errs, "status", "--follow") }()
	eventually(t, "the first status", func() bool { return strings.Contains(out.String(), "0 have not ended") })
	h.Mission(t, "m1", "agent-01")
	eventually(t, "the change", func() bool { return strings.Contains(out.String(), "1 have not ended") })
	cancel()
	if code := <-done; code != ExitFailed {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if n := strings.Count(out.String(), "have not ended"); n != 2 {
		t.Errorf("%d snapshots for one change: %s", n, out.String())
	}
}

func TestStatusFollowsToTheEnd(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	for flag, want := range map[string]string{"": "summary=\"half way\"", "--json": `"state": "ENDED"`} {
		id := "m" + flag
		h.Mission(t, id, "agent-01")
		var out, errs buffer
		done := make(chan int, 1)
		args := []string{"status", "--follow", "--", id}
		if flag != "" {
			args = []string{"status", "--follow", flag, "--", id}
		}
		go func() { done <- sh.start(t.Context(), strings.NewReader(""), &out, &errs, args...) }()
		eventually(t, "the first status", func() bool { return strings.Contains(strings.ToLower(out.String()), "running") })
		h.Engine.Emit(id, journal.Progress, map[string]any{"phase": "execution", "summary": "half way"})
		if err := h.Engine.End(id, 1); err != nil {
			t.Fatal(err)
		}
		result{<-done, out.String(), errs.String()}.want(t, 0).has(t, want, "failed")
	}
}

func TestPluginsAndHostCommands(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := alice(t, h)
	sh.run("plugin", "list").want(t, 0).has(t, "isolation.docker.container", "unhealthy", "docker is not reachable")
	sh.run("plugin", "list", "--json").want(t, 0).has(t, `"restarts": 2`)
	sh.run("plugin", "inspect", "container").want(t, 0).has(t, "airlock-isolation-docker")
	sh.run("plugin", "inspect", "none").want(t, ExitNotFound).has(t, "PATH of an executable", "--plugin-dir")
	// What no instance uses is looked for as an executable.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "airlock-isolation-other"), []byte("no program"), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	for _, name := range []string{"other", "airlock-isolation-other"} {
		sh.run("plugin", "inspect", name, "--plugin-dir", dir).want(t, ExitFailed).has(t, filepath.Join(dir, "airlock-isolation-other"))
	}
	sh.run("plugin", "reload", "isolation.docker.container").want(t, 0)
	sh.run("plugin", "reload", "none").want(t, ExitNotFound)
	if h.Plugins.Reloaded.Load() != 1 {
		t.Error("the plugin was not reloaded once")
	}
	sh.run("drain", "--deadline", "1m").want(t, 0).has(t, "no new missions")
	sh.run("reload").want(t, 0).has(t, "applied at once", "operator.bob", "airlock.hcl:3")
	sh.run("version").want(t, 0).has(t, "airlock 1.2.3")
	if got := sh.run("version", "--json").want(t, 0).object(t); got["version"] != "1.2.3" {
		t.Errorf("version = %v", got)
	}
	sh.run("completion", "bash").want(t, 0).has(t, "airlock")
	dir = t.TempDir()
	sh.run("man", dir).want(t, 0)
	if _, err := os.Stat(filepath.Join(dir, "airlock-mission-dispatch.1")); err != nil {
		t.Error(err)
	}
}

func TestWhoIsNotAllowed(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	h.Mission(t, "m2", "agent-02")
	sh := alice(t, h)
	sh.with("AIRLOCK_TOKEN", "").run("mission", "list").want(t, ExitNotAllowed).has(t, "AIRLOCK_TOKEN")
	sh.with("AIRLOCK_TOKEN", strings.Repeat("x", 32)).run("mission", "list").want(t, ExitNotAllowed).has(t, "does not take this token")
	sh.with("AIRLOCK_TOKEN", apitest.VicToken).run("mission", "pause", "m1").want(t, ExitNotAllowed).has(t, "viewer")
	sh.with("AIRLOCK_TOKEN", apitest.RobToken).run("mission", "show", "m2").want(t, ExitNotFound)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(apitest.AliceToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh.with("AIRLOCK_TOKEN", "").run("--token-file", file, "mission", "show", "m1").want(t, 0)
}

func TestWhereTheHostIs(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	sh := &shell{t, nil, h.Socket} // the operator socket is where it is by default
	sh.run("status").want(t, 0).has(t, h.Socket)
	for _, addr := range []string{h.Socket, "unix:" + h.Socket, "unix://" + h.Socket} {
		sh.run("--addr", addr, "status").want(t, 0)
	}
	tcp := &shell{t, map[string]string{"AIRLOCK_TOKEN": apitest.AliceToken}, "/nonexistent"}
	tcp.run("--addr", strings.TrimPrefix(h.REST, "http://"), "status").want(t, 0)
	r := tcp.run("--addr", "127.0.0.1:1", "status").want(t, ExitFailed).has(t, "no host answers at http://127.0.0.1:1: is `airlock serve` running?")
	if strings.Contains(r.err, "livez") {
		t.Errorf("the message names a route: %s", r.err)
	}
	tcp.run("--addr", "/nonexistent/sock", "status").want(t, ExitFailed).has(t, "/nonexistent/sock")
	for _, bad := range []string{"ftp://x", "http://", "http://user:secret@127.0.0.1:1"} {
		tcp.run("--addr", bad, "status").want(t, ExitFailed).has(t, "HOST:PORT")
	}
	for _, bad := range []string{"http://127.0.0.1:1", "127.0.0.1/tasks/x", "http://127.0.0.1:1/tasks/a/b", "http://127.0.0.1:1/tasks/"} {
		tcp.with("SIDECAR_ENDPOINT", bad).run("status").want(t, ExitFailed).has(t, "SIDECAR_ENDPOINT")
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	t.Parallel()
	root := NewRoot("1.2.3", &cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}, Example: "x", Short: "x"})
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s says nothing about itself", c.CommandPath())
		}
		if !c.HasSubCommands() && !c.Hidden && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if cmd, _, err := root.Find([]string{"serve"}); err != nil || cmd.Name() != "serve" {
		t.Errorf("the extra command is not there: %v", err)
	}
}

func TestCancelEndsAFollow(t *testing.T) {
	t.Parallel()
	h := apitest.New(t)
	h.Mission(t, "m1", "agent-01")
	for _, args := range [][]string{{"journal", "events", "m1", "--follow"}, {"mission", "logs", "m1", "--follow"}, {"status", "m1", "--follow"}} {
		ctx, cancel := context.WithCancel(t.Context())
		var out, errs buffer
		done := make(chan int, 1)
		go func() { done <- alice(t, h).start(ctx, strings.NewReader(""), &out, &errs, args...) }()
		if args[1] != "logs" {
			eventually(t, "output", func() bool { return out.String() != "" })
		}
		cancel()
		if code := <-done; code != ExitFailed {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
