package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/orchestrator"
)

// devOptions are the flags of `airlock dev`.
type devOptions struct {
	once, agent, dataDir, plugins, cellAgent, level, claude string
	json                                                    bool
	timeout                                                 time.Duration
}

// DevCommand is `airlock dev`.
func DevCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "run a host without configuration, with an orchestrator of its own",
		Long: `Run a host that needs no configuration: the host-supervisor driver and the
command runtime, a temporary data directory, and an orchestrator inside the
same program that speaks the real wire.

With --once one mission is dispatched through the orchestrator, its events are
printed as they arrive, and the exit code is the mission's. Without it the host
stays up until ^C.

With --agent claude there is an agent that runs Claude Code, which must be
installed, each of its tool calls judged by the host. Its model is the real API
with the key in ANTHROPIC_API_KEY; without one it is a stand-in that follows the
steps of the prompt, so that no account is needed to watch.`,
		Example: `  airlock dev --once examples/missions/hello.json
  airlock dev --agent claude --once examples/missions/claude.json
  airlock dev                       # then, elsewhere: airlock mission dispatch "echo hello"`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilSignal(cmd.Context(), func(ctx context.Context) error {
				return runDev(ctx, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.once, "once", "", "dispatch the mission in this JSON file and end with it")
	f.StringVar(&o.agent, "agent", "", "agent block to use (default: the file's, else agent-01)")
	f.StringVar(&o.dataDir, "data-dir", "", "keep the data in this directory (default: a temporary one)")
	f.StringVar(&o.plugins, "plugins", "", "plugin directory (default: plugins/ beside this program)")
	f.StringVar(&o.cellAgent, "cell-agent", "", "the airlock-cell program (default: beside this program)")
	f.StringVar(&o.claude, "claude", "", "with --agent claude: the native binary of Claude Code (default: claude in PATH)")
	f.StringVar(&o.level, "log-level", "warn", "trace, debug, info, warn or error")
	f.BoolVar(&o.json, "json", false, "with --once: print the events as JSON lines")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "with --once: give up after this time")
	return cmd
}

// dev is a development host that runs.
type dev struct {
	devOptions
	out, errOut io.Writer
	dir, token  string
	orc         *orchestrator.Orchestrator
	addresses   Addresses
	claudeCode  *devClaude // nil: there is no agent claude

	printing sync.Mutex
}

// say prints a line or more at once.
func (d *dev) say(format string, args ...any) {
	d.printing.Lock()
	defer d.printing.Unlock()
	fmt.Fprintf(d.out, format, args...)
}

func runDev(ctx context.Context, o devOptions, out, errOut io.Writer) error {
	d := &dev{devOptions: o, out: out, errOut: errOut, dir: o.dataDir}
	var mission []byte
	if o.once != "" {
		var err error
		if mission, err = readMission(o.once, o.agent); err != nil {
			return err
		}
	}
	if d.dir == "" {
		dir, err := os.MkdirTemp("", "airlock-dev-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		d.dir = dir
	}
	if o.claude != "" && o.agent != claudeAgent {
		return fmt.Errorf("--claude belongs to --agent %s", claudeAgent)
	}
	if o.agent == claudeAgent {
		var err error
		if d.claudeCode, err = newDevClaude(o.claude, d.dir); err != nil {
			return err
		}
		defer d.claudeCode.close()
		takeVerdict(d.dir)
		defer keepVerdict(d.dir)
	}
	d.orc = orchestrator.New(orchestrator.Options{AllowAgentID: true, Path: "/" + randomHex(16)})
	if err := d.orc.Start("127.0.0.1:0"); err != nil {
		return err
	}
	defer d.orc.Close()
	cfg, err := d.config()
	if err != nil {
		return err
	}
	log, err := newLog(o.level, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up := make(chan Addresses, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: cfg, CellAgent: o.cellAgent, Log: log, EndMissions: true, Up: func(a Addresses) { up <- a }})
	}()
	select {
	case err := <-ended:
		return err
	case d.addresses = <-up:
	}
	if o.once == "" {
		d.greet()
		return <-ended
	}
	err = d.runOnce(ctx, mission)
	cancel()
	if herr := <-ended; herr != nil && err == nil {
		err = herr
	}
	return err
}

// readMission reads a dispatch body; the agent of the command line wins.
func readMission(path, agent string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var body map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w (a mission is a JSON object with objective, and optionally mission_id and completion)", path, err)
	}
	if s, _ := body["objective"].(string); s == "" {
		return nil, fmt.Errorf("%s: objective is missing: it says what to run", path)
	}
	if s, _ := body["mission_id"].(string); s == "" {
		body["mission_id"] = "dev-" + randomHex(4)
	}
	if s, _ := body["completion"].(string); s == "" {
		body["completion"] = "it exits 0"
	}
	if agent != "" {
		filter, _ := body["executor_filter"].(map[string]any)
		if filter == nil {
			filter = map[string]any{}
		}
		filter["agent_id"] = agent
		body["executor_filter"] = filter
	}
	return json.Marshal(body)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// config writes the configuration down as HCL and reads it the usual way.
func (d *dev) config() (*config.Config, error) {
	d.token = randomHex(24)
	tokenFile := filepath.Join(d.dir, "operator.token")
	if err := os.WriteFile(tokenFile, []byte(d.token), 0o600); err != nil {
		return nil, err
	}
	if d.plugins == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		d.plugins = filepath.Join(filepath.Dir(exe), "plugins")
	}
	claude, rule := "", ""
	if d.claudeCode != nil {
		claude, rule = d.claudeCode.blocks(), claudeRule
	}
	text := fmt.Sprintf(`name     = "dev"
data_dir = %[1]q
run_dir  = %[2]q
listen {
  rest = %[3]q
  ws   = %[4]q
}
orchestrator {
  endpoint      = %[5]q
  missions_json = false
}
plugins {
  dir  = %[6]q
  lock = %[7]q
}
isolation "host-supervisor" "host" {
  config {}
}
runtime "command" "shell" {
  config {
    prompts = ["\\(y/n\\)\\s*$", "[?:]\\s*$"]
  }
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"%[12]s
  }
  head {
    file     = %[8]q
    key_file = %[9]q
  }
}
%[13]sagent "agent-01" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 8
}
operator "dev" {
  token_file = %[10]q
  uids       = [%[11]d]
  role       = "operator"
}
`, filepath.Join(d.dir, "data"), filepath.Join(d.dir, "run"), free("127.0.0.1:8122", d.once != ""), free("127.0.0.1:8121", d.once != ""),
		d.orc.URL(), d.plugins, filepath.Join(d.dir, "plugins.lock.hcl"), filepath.Join(d.dir, "heads", "heads.jsonl"),
		filepath.Join(d.dir, "heads", "host.key"), tokenFile, os.Getuid(), rule, claude)
	sources := &config.Sources{}
	cfg, diags := config.Parse([]config.Source{{Name: "dev.hcl", Bytes: []byte(text)}}, config.Options{Sources: sources})
	if diags.HasErrors() {
		printDiagnostics(d.errOut, sources, diags)
		return nil, errors.New("the built-in configuration cannot be used")
	}
	return cfg, nil
}

// free gives the usual address when nobody listens there, else any port.
func free(addr string, any bool) string {
	if any {
		return "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return addr
}

func (d *dev) greet() {
	more, example := "", `airlock mission dispatch "echo hello"`
	if c := d.claudeCode; c != nil {
		more = fmt.Sprintf("  claude        %s\n  model         %s\n", c.binary, c.model())
		example = "airlock mission dispatch --agent claude -f examples/missions/claude.json"
	}
	fmt.Fprintf(d.out, `Airlock is up. ^C ends it.

  Control Room  %s/   (sign in with the token, or open the link of: airlock ui)
  REST          %s
  WebSockets    %s
  orchestrator  %s   (embedded; POST /api/v1/sessions/dev/dispatch)
  token         %s
%s
In another terminal:

  export AIRLOCK_ADDR=%s AIRLOCK_TOKEN=%s
  %s
  airlock mission list
  airlock ui

`, d.addresses.REST, d.addresses.REST, d.addresses.WS, d.orc.URL(), d.token, more, d.addresses.REST, d.token, example)
}

// runOnce dispatches one mission and follows it to its end.
func (d *dev) runOnce(ctx context.Context, body []byte) error {
	if d.claudeCode != nil {
		if err := d.awaitClaude(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var id struct {
		MissionID string `json:"mission_id"`
		Objective string `json:"objective"`
	}
	if err := json.Unmarshal(body, &id); err != nil {
		return err
	}
	events := d.orc.Follow(ctx)
	if !d.json {
		d.say("mission   %s\nobjective %s\n\n", id.MissionID, strings.TrimSpace(id.Objective))
	}
	told := func() {}
	if d.claudeCode != nil {
		told = d.tellCalls(ctx, id.MissionID)
	}
	if err := d.dispatch(ctx, body); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return d.unended(ctx, id.MissionID)
		case ev, ok := <-events:
			if !ok {
				return d.unended(ctx, id.MissionID)
			}
			if ev.MissionID != id.MissionID {
				continue
			}
			end, code := ending(ev)
			if end {
				told() // the calls come before the end
			}
			d.print(ev)
			if ev.Event == "mission.hitl_required" && !d.json {
				d.say("  to answer, in another terminal:\n  export AIRLOCK_ADDR=%s AIRLOCK_TOKEN=%s\n  airlock hitl list\n  airlock hitl respond ID TEXT      (an approval: airlock approve ID approve_once)\n", d.addresses.REST, d.token)
			}
			if end {
				if !d.json && d.claudeCode == nil { // what Claude Code writes is for programs
					d.printOutput(ctx, id.MissionID)
				}
				if code != 0 {
					return exitCode{code}
				}
				return nil
			}
		}
	}
}

// unended is the error of a mission that was not seen to end.
func (d *dev) unended(ctx context.Context, missionID string) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("mission %s did not end in %s (--timeout): %w", missionID, d.timeout, exitCode{5})
	}
	return ctx.Err()
}

// dispatch waits until the host is registered, then routes the mission.
func (d *dev) dispatch(ctx context.Context, body []byte) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.orc.URL()+"/api/v1/sessions/dev/dispatch", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusAccepted:
			return nil
		case resp.StatusCode == http.StatusServiceUnavailable && bytes.Contains(text, []byte("no_executor_available")):
			// Not registered yet.
			select {
			case <-ctx.Done():
				return fmt.Errorf("no agent took the mission (`airlock dev --log-level info` shows why): %w", exitCode{5})
			case <-time.After(20 * time.Millisecond):
			}
		default:
			return fmt.Errorf("the dispatch was refused: %s", refusalWords(text))
		}
	}
}

// refusalWords are the words of a refused dispatch: the orchestrator's answer, in
// whose detail the host's answer stands as it came.
func refusalWords(text []byte) string {
	var answer struct {
		Error  string `json:"error"`
		Detail any    `json:"detail"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return string(bytes.TrimSpace(text))
	}
	switch d := answer.Detail.(type) {
	case string:
		if i := strings.IndexByte(d, '{'); i >= 0 && json.Valid([]byte(d[i:])) {
			return refusalWords([]byte(d[i:]))
		}
		if d != "" {
			return d
		}
	case map[string]any:
		if inner, err := json.Marshal(d); err == nil {
			return refusalWords(inner)
		}
	}
	if answer.Error != "" {
		return answer.Error
	}
	return string(bytes.TrimSpace(text))
}

func (d *dev) print(ev orchestrator.Event) {
	if d.json {
		text, err := json.Marshal(ev)
		if err == nil {
			d.say("%s\n", text)
		}
		return
	}
	clock := ev.TS
	if at, err := time.Parse(time.RFC3339, ev.TS); err == nil {
		clock = at.Local().Format("15:04:05.000")
	}
	d.say("%s  %-22s %s\n", clock, ev.Event, ev.Data)
}

// ending says whether an event ends the mission, and with which exit code.
func ending(ev orchestrator.Event) (bool, int) {
	var data struct {
		ExitCode *int `json:"exit_code"`
	}
	_ = json.Unmarshal(ev.Data, &data)
	switch ev.Event {
	case "mission.completed":
		return true, 0
	case "mission.failed":
		if data.ExitCode != nil && *data.ExitCode != 0 {
			return true, *data.ExitCode
		}
		return true, 1
	case "mission.aborted":
		return true, 1
	default:
		return false, 0
	}
}

// printOutput shows what the mission wrote.
func (d *dev) printOutput(ctx context.Context, missionID string) {
	m, ok := d.orc.Mission(missionID)
	if !ok || m.PTYSessionRef == "" {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.addresses.REST+"/api/v1/sessions/"+m.PTYSessionRef+"/log", nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	fmt.Fprintf(d.out, "\noutput of the session:\n")
	_, _ = io.Copy(d.out, io.LimitReader(resp.Body, 64<<10))
	fmt.Fprintln(d.out)
}
