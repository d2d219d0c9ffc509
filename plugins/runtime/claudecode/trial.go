package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// trial is one run of the CLI against the stand-in of the Messages API, with
// the arguments and the environment of a mission, and a decider of its own.
type trial struct {
	cli     string // path of the binary
	dir     string // a directory of the trial's own
	session string // "" = a new one; else it is resumed
	script  string // what the stand-in does, see sdk/fake/messages
	env     map[string]string
	servers map[string]mcpServer
	hooks   []byte // another initialize
	limit   time.Duration
	decide  func(gateAsk) reply
	stop    context.CancelFunc
}

// gateAsk is one question of the CLI.
type gateAsk struct {
	gate    string // first, second, after
	id      string // of the request
	tool    string
	use     string // tool_use_id
	agent   string
	command string // of Bash
}

// reply is what the decider does. The zero value allows nothing: it is the
// answer {}.
type reply struct {
	body   any
	raw    []byte // instead of body: a line as it is
	fault  string // instead of body: an error
	silent bool   // no answer at all, until patience ends the trial
	wait   time.Duration
	hangUp bool // the pipe is closed, as when the decider dies
}

// tried is what came of a trial.
type tried struct {
	asks   []gateAsk
	ending *ending
	result json.RawMessage
	hooked initialized
	asking bool // the rule that asks before every call is there
	stderr string
	calls  int // requests to the stand-in
	late   bool
}

func (t *trial) work() string { return filepath.Join(t.dir, "work") }

// did says whether a call had its effect.
func (t *trial) did(name string) bool {
	_, err := os.Lstat(filepath.Join(t.work(), name))
	return err == nil
}

// run runs the CLI to its end, or to the end of the time.
func (t *trial) run(ctx context.Context) (*tried, error) {
	for _, d := range []string{"work", "state", "tmp"} {
		if err := os.MkdirAll(filepath.Join(t.dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	api, err := messages.Serve("unix:"+filepath.Join(t.dir, "api"), messages.Options{})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	t.stop = cancel
	cmd := exec.CommandContext(ctx, t.cli, t.args()...)
	cmd.Dir, cmd.Env = t.work(), t.environ(api.Socket)
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	got := &tried{}
	t.drive(in, out, got)
	_ = in.Close()
	err = cmd.Wait()
	_ = killGroup(cmd.Process.Pid) // what it has left behind
	got.stderr, got.calls, got.late = clip(stderr.String(), 400), len(api.Requests()), ctx.Err() != nil
	if ctx.Err() == nil && err != nil && got.ending == nil && len(got.asks) == 0 {
		return nil, fmt.Errorf("it ended with %w: %s", err, firstLine(stderr.String()))
	}
	return got, nil
}

// args are those of a mission whose objective is the script.
func (t *trial) args() []string {
	c := &compiled{config: config{Binary: t.cli, Tools: []string{"Bash", "Agent"}, Deny: []string{"WebFetch"}, MCPServers: t.servers}}
	session := []string{"--resume", t.session}
	if t.session == "" {
		t.session = uuid.NewString()
		session = []string{"--session-id", t.session}
	}
	return c.argv(session, rulesText)[1:]
}

func (t *trial) environ(socket string) []string {
	fill := strings.NewReplacer("${AIRLOCK_STATE}", filepath.Join(t.dir, "state"), "${AIRLOCK_TMP}", filepath.Join(t.dir, "tmp"),
		"${AIRLOCK_GATEWAY_CANARY_SOCKET}", socket)
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "CLAUDE_CODE_MAX_RETRIES=1"}
	for k, v := range fixedEnv("canary", t.env) {
		env = append(env, k+"="+fill.Replace(v))
	}
	return env
}

// drive answers the CLI until its output ends.
func (t *trial) drive(in io.WriteCloser, out io.Reader, got *tried) {
	hooks := t.hooks
	if hooks == nil {
		hooks = initialize()
	}
	open := true
	write := func(b []byte) {
		if open {
			_, _ = in.Write(b) // its end shows in the output
		}
	}
	write(hooks)
	write(listRules())
	if t.script != "" {
		write(userMessage(t.script))
	}
	r := bufio.NewReaderSize(out, 1<<16)
	for {
		text, err := r.ReadBytes('\n')
		if len(text) > 0 {
			t.line(text, got, write)
			if open && got.hungUp(text) {
				open = false
				_ = in.Close()
			}
		}
		if err != nil {
			return
		}
	}
}

// hungUp says whether the decider goes away now: it was told to, or the work
// is done.
func (g *tried) hungUp(text []byte) bool {
	if n := len(g.asks); n > 0 && g.asks[n-1].gate == "gone" {
		return true
	}
	return g.ending != nil && bytes.Contains(text, []byte(`"state":"idle"`))
}

func (t *trial) line(text []byte, got *tried, write func([]byte)) {
	var f frame
	if json.Unmarshal(text, &f) != nil {
		return
	}
	switch f.Type {
	case "result":
		got.ending, _ = readEnding(text)
		got.result = bytes.Clone(text)
	case "control_response":
		var r response
		if json.Unmarshal(f.Response, &r) != nil {
			return
		}
		switch r.RequestID {
		case initID:
			_ = json.Unmarshal(r.Response, &got.hooked) // what is missing is false
		case rulesID:
			got.asking = asksAlways(r.Response)
		}
	case "control_request":
		a, ok := readAsk(&f)
		if !ok {
			write(failure(f.RequestID, "not supported"))
			return
		}
		got.asks = append(got.asks, a)
		switch r := t.decide(a); {
		case r.hangUp:
			got.asks = append(got.asks, gateAsk{gate: "gone"})
		case r.silent:
			if r.wait > 0 {
				time.AfterFunc(r.wait, t.stop)
			}
		case r.raw != nil:
			write(r.raw)
		case r.fault != "":
			write(failure(a.id, r.fault))
		case r.body == nil:
			write(success(a.id, object{}))
		default:
			write(success(a.id, r.body))
		}
	}
}

func readAsk(f *frame) (gateAsk, bool) {
	var r request
	if json.Unmarshal(f.Request, &r) != nil {
		return gateAsk{}, false
	}
	a := gateAsk{gate: "second", id: f.RequestID, tool: r.ToolName, use: r.ToolUseID, agent: r.AgentID, command: pick(r.Input, "command")}
	switch r.Subtype {
	case "can_use_tool":
		return a, true
	case "hook_callback":
		var in hookInput
		if json.Unmarshal(r.Input, &in) != nil {
			return gateAsk{}, false
		}
		a.gate, a.tool, a.use, a.agent, a.command = "after", in.ToolName, in.ToolUseID, in.AgentID, pick(in.ToolInput, "command")
		if in.Event == "PreToolUse" {
			a.gate = "first"
		}
		return a, true
	}
	return gateAsk{}, false
}

// asked counts the questions of one gate about a Bash command.
func (g *tried) asked(gate, command string) (n int) {
	for _, a := range g.asks {
		if a.gate == gate && a.command == command {
			n++
		}
	}
	return n
}
