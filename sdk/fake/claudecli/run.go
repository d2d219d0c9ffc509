package claudecli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Result is how a run ended.
type Result struct {
	Text      string // of the last result event
	IsError   bool
	Reason    string // terminal_reason
	Stop      string // stop_reason
	APIStatus int    // api_error_status
	Turns     int
	Usage     map[string]any
	Denied    int // permission_denials

	Asks   []Ask
	Events []json.RawMessage // every line, but answers to our own requests
	Exit   int
	Stderr string
	Start  time.Time // when the process was started
}

// line is what Run looks at of a line of the CLI.
type line struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id"`
	Request   struct {
		Subtype string `json:"subtype"`
		Tool    string `json:"tool_name"`
		Input   struct {
			Event    string          `json:"hook_event_name"`
			Tool     string          `json:"tool_name"`
			Input    json.RawMessage `json:"tool_input"`
			Response json.RawMessage `json:"tool_response"`
		} `json:"-"`
		RawInput json.RawMessage `json:"input"`
		ID       string          `json:"tool_use_id"`
		Agent    string          `json:"agent_id"`
	} `json:"request"`
	Result    string            `json:"result"`
	IsError   bool              `json:"is_error"`
	Reason    string            `json:"terminal_reason"`
	Stop      string            `json:"stop_reason"`
	APIStatus int               `json:"api_error_status"`
	Turns     int               `json:"num_turns"`
	Usage     map[string]any    `json:"usage"`
	Denials   []json.RawMessage `json:"permission_denials"`
}

// Run starts the CLI, gives it a prompt, answers its gates, and waits for its
// end. With an empty prompt it is only resumed. When ctx ends, its whole process
// group is killed.
func Run(ctx context.Context, o Options, prompt string) (*Result, error) {
	cmd := exec.CommandContext(ctx, o.Binary, o.args()...)
	cmd.Dir, cmd.Env = o.Dir, o.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
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
	r := &Result{Start: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	talk := &talk{in: in, opts: &o, res: r, prompt: prompt}
	terr := talk.run(out)
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	r.Exit, r.Stderr = cmd.ProcessState.ExitCode(), stderr.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, err
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	return r, terr
}

// talk is the host's side of the pipes.
type talk struct {
	in     io.WriteCloser
	opts   *Options
	res    *Result
	prompt string
}

func (t *talk) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = t.in.Write(append(text, '\n'))
	return err
}

func (t *talk) run(out io.Reader) error {
	hooks := map[string]any{
		"PreToolUse":         []any{map[string]any{"hookCallbackIds": []string{"pre"}, "timeout": 3600, "onFailure": "block"}},
		"PostToolUse":        []any{map[string]any{"hookCallbackIds": []string{"post"}}},
		"PostToolUseFailure": []any{map[string]any{"hookCallbackIds": []string{"post"}}},
	}
	if err := t.send(map[string]any{"type": "control_request", "request_id": "init",
		"request": map[string]any{"subtype": "initialize", "hooks": hooks}}); err != nil {
		return err
	}
	if t.prompt != "" {
		if err := t.send(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": t.prompt}, "parent_tool_use_id": nil}); err != nil {
			return err
		}
	}
	rd := bufio.NewReader(out)
	for {
		text, err := rd.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			if lerr := t.line(text); lerr != nil {
				return lerr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *talk) line(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("a line of the CLI is no JSON: %w", err)
	}
	switch l.Type {
	case "control_response", "keep_alive":
		return nil
	case "control_request":
		return t.answer(&l)
	case "result":
		r := t.res
		r.Text, r.IsError, r.Reason, r.Stop, r.APIStatus = l.Result, l.IsError, l.Reason, l.Stop, l.APIStatus
		r.Turns, r.Usage, r.Denied = l.Turns, l.Usage, len(l.Denials)
		_ = t.in.Close() // it ends when it has nothing more to do
	}
	t.res.Events = append(t.res.Events, bytes.Clone(bytes.TrimSpace(text)))
	return nil
}

// answer answers a gate.
func (t *talk) answer(l *line) error {
	q := Ask{Gate: "prompt", Tool: l.Request.Tool, ID: l.Request.ID, Agent: l.Request.Agent, Input: l.Request.RawInput}
	var allow any = map[string]any{"behavior": "allow"}
	switch l.Request.Subtype {
	case "can_use_tool":
	case "hook_callback":
		hook := &l.Request.Input
		if err := json.Unmarshal(l.Request.RawInput, hook); err != nil {
			return err
		}
		q.Gate, q.Tool, q.Input, q.Answer = "after", hook.Tool, hook.Input, hook.Response
		allow = map[string]any{}
		if hook.Event == "PreToolUse" {
			q.Gate = "hook"
			allow = map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": hook.Event, "permissionDecision": "allow"}}
		}
	default:
		return t.send(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": l.RequestID, "error": "not known here"}})
	}
	t.res.Asks = append(t.res.Asks, q)
	say := allow
	if t.opts.Decide != nil {
		if d := t.opts.Decide(q); d != nil {
			say = d
		}
	}
	return t.send(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": l.RequestID, "response": say}})
}
