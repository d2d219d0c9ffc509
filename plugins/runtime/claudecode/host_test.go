package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/fake/claudecli"
	"github.com/airlock-host/airlock/sdk/fake/messages"
)

// smallHost is the least of a host: it starts what Plan says, keeps the output,
// feeds Run, decides, and applies writes once. The CLI is the real one.
type smallHost struct {
	t      *testing.T
	p      *claude
	api    *messages.Server
	dir    string
	spec   *pluginv1.MissionSpec
	decide func(*pluginv1.Proposal) *pluginv1.Verdict // nil = held until answer
	answer func(*pluginv1.Question) *pluginv1.Answer

	mu      sync.Mutex
	news    chan struct{} // closed at each change
	output  []*pluginv1.Output
	next    uint64
	exit    *pluginv1.Exit
	keys    map[string]bool
	events  []string
	made    map[string]string // invocation by proposal
	settled map[string]pluginv1.Outcome
	point   *pluginv1.Checkpoint
	problem []string
	stream  *memoryStream
	stdin   io.WriteCloser
	cmd     *exec.Cmd
	args    map[string]string
	props   []*pluginv1.Proposal
	prog    []*pluginv1.Progress
}

func newSmallHost(t *testing.T, script string, change func(map[string]any)) *smallHost {
	t.Helper()
	cli := claudecli.Need(t)
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &smallHost{t: t, dir: dir, p: newPlugin(), keys: map[string]bool{}, made: map[string]string{}, settled: map[string]pluginv1.Outcome{},
		news: make(chan struct{}), args: map[string]string{},
		spec: &pluginv1.MissionSpec{MissionId: "mission/" + t.Name(), Objective: script, Completion: "all files are there"}}
	cfg := defaults(t)
	cfg["binary"] = cli
	if change != nil {
		change(cfg)
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, found := compile(data)
	if len(found) > 0 {
		t.Fatal(found)
	}
	h.p.current.Store(c)
	if h.api, err = messages.Serve("unix:"+filepath.Join(dir, "api"), messages.Options{Bodies: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.api.Close)
	for _, d := range []string{"work", "state", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.decide = func(*pluginv1.Proposal) *pluginv1.Verdict { return verdictOf(allow, "", "") }
	return h
}

// defaults are the schema's, as a host fills them in.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, a := range schema().GetAttributes() {
		var v any
		if d := a.GetDefaultJson(); d != "" {
			if err := json.Unmarshal([]byte(d), &v); err != nil {
				t.Fatal(err)
			}
		}
		out[a.GetName()] = v
	}
	return out
}

func verdictOf(d pluginv1.Decision, reason, updated string) *pluginv1.Verdict {
	return &pluginv1.Verdict{Decision: d, Reason: reason, UpdatedArgs: []byte(updated)}
}

func (h *smallHost) file(name string) string { return filepath.Join(h.dir, "work", name) }

func (h *smallHost) there(name string) bool {
	_, err := os.Lstat(h.file(name))
	return err == nil
}

func (h *smallHost) changed() {
	close(h.news)
	h.news = make(chan struct{})
}

// until waits for something that the host has seen.
func (h *smallHost) until(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		h.mu.Lock()
		done, news := ok(), h.news
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-news:
		case <-deadline:
			h.mu.Lock()
			defer h.mu.Unlock()
			h.t.Fatalf("not in time: %s; events %q, problems %q", what, h.events, h.problem)
		}
	}
}

// launch starts a session and gives its result. breakAt breaks the stream to
// the plugin behind each of these numbers of output lines.
func (h *smallHost) session(generation uint64, resume *pluginv1.ResumePoint, breakAt ...int) *pluginv1.Result {
	h.t.Helper()
	plan, err := h.p.Plan(context.Background(), &pluginv1.PlanRequest{Mission: h.spec, Resume: resume, Cell: &pluginv1.CellFacts{Uid: uint32(os.Geteuid())}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.start(plan.GetPlan())
	open := &pluginv1.Open{Mission: h.spec, SessionId: fmt.Sprint("s", generation), Plan: plan.GetPlan(), Generation: generation}
	for {
		limit := 0
		if len(breakAt) > 0 {
			limit, breakAt = breakAt[0], breakAt[1:]
		}
		if r := h.follow(open, limit); r != nil {
			h.record(generation)
			return r
		}
		h.mu.Lock()
		open.State, open.Offset = h.point.GetState(), h.point.GetOffset()
		h.mu.Unlock()
	}
}

// record writes what the CLI has printed into the directory that
// AIRLOCK_RECORD names; testdata/transcripts was made like this.
func (h *smallHost) record(generation uint64) {
	dir := os.Getenv("AIRLOCK_RECORD")
	if dir == "" {
		return
	}
	var b strings.Builder
	for _, o := range h.output {
		if o.GetStream() == pluginv1.Stream_STREAM_STDOUT {
			// The CLI writes the directory in names of files too, with - for /.
			b.Write(trim([]byte(strings.NewReplacer(h.dir, "/cell", strings.ReplaceAll(h.dir, "/", "-"), "-cell").Replace(string(o.GetData())))))
		}
	}
	name := fmt.Sprintf("%s-%d.jsonl", h.t.Name(), generation)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644); err != nil {
		h.t.Error(err)
	}
}

// trim leaves out what the CLI tells of itself: its commands, skills and agents
// are its vendor's text, and nothing of them is read.
func trim(text []byte) []byte {
	var f map[string]any
	if json.Unmarshal(text, &f) != nil {
		return text
	}
	keep := func(m map[string]any, names ...string) {
		for k := range m {
			if !slices.Contains(names, k) {
				delete(m, k)
			}
		}
	}
	r, _ := f["response"].(map[string]any)
	switch {
	case f["subtype"] == "init":
		keep(f, "type", "subtype", "cwd", "session_id", "tools", "mcp_servers", "model", "permissionMode", "claude_code_version", "uuid")
	case r["request_id"] == rulesID: // the rest are names of tools that the session does not have
		var all rules
		if json.Unmarshal(text, &struct {
			Response struct{ Response *rules }
		}{struct{ Response *rules }{&all}}) == nil {
			all.State.Rules = slices.DeleteFunc(all.State.Rules, func(o rule) bool { return o.Source != "flagSettings" })
			r["response"] = all
		}
	case r["request_id"] == initID:
		if body, ok := r["response"].(map[string]any); ok {
			keep(body, "hooks_applied", "hook_on_failure_supported", "session_state", "claude_code_version", "current_permission_mode")
		}
	default:
		return text
	}
	return line(f)
}

func (h *smallHost) start(plan *pluginv1.LaunchPlan) {
	fill := strings.NewReplacer("${AIRLOCK_STATE}", filepath.Join(h.dir, "state"), "${AIRLOCK_TMP}", filepath.Join(h.dir, "tmp"),
		"${AIRLOCK_GATEWAY_ANTHROPIC_SOCKET}", h.api.Socket)
	cmd := exec.Command(plan.GetArgv()[0], plan.GetArgv()[1:]...)
	cmd.Dir = filepath.Join(h.dir, "work")
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	for k, v := range plan.GetEnv() {
		cmd.Env = append(cmd.Env, k+"="+fill.Replace(v))
	}
	ownGroup(cmd)
	cmd.Cancel = nil
	stdin, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.cmd, h.stdin, h.output, h.next, h.exit, h.point = cmd, stdin, nil, 0, nil, nil
	h.keys = map[string]bool{}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := bufio.NewReaderSize(stdout, 1<<16)
		for {
			text, err := r.ReadBytes('\n')
			h.mu.Lock()
			if len(text) > 0 {
				h.output = append(h.output, &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDOUT, Offset: h.next, Data: text})
				h.next += uint64(len(text))
			}
			h.changed()
			h.mu.Unlock()
			if err != nil {
				break
			}
		}
		err := cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		x := &pluginv1.Exit{}
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			ws := e.Sys().(syscall.WaitStatus)
			x.Code = int32(max(ws.ExitStatus(), 0))
			if ws.Signaled() {
				x.Signal = int32(ws.Signal())
			}
		}
		h.mu.Lock()
		if s := stderr.Bytes(); len(s) > 0 {
			h.output = append(h.output, &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDERR, Offset: h.next, Data: s})
			h.next += uint64(len(s))
		}
		h.exit = x
		h.changed()
		h.mu.Unlock()
	}()
	h.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-done })
}

// follow opens a stream to the plugin and feeds it; nil = it was broken.
func (h *smallHost) follow(open *pluginv1.Open, limit int) *pluginv1.Result {
	ctx, cancel := context.WithCancel(context.Background())
	s := &memoryStream{ctx: ctx, in: make(chan *pluginv1.RunRequest, 1024), out: make(chan *pluginv1.RunResponse, 1024)}
	h.mu.Lock()
	h.stream = s
	caught := h.next
	h.mu.Unlock()
	s.in <- &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Open{Open: open}}
	ended := make(chan error, 1)
	go func() { ended <- h.p.Run(s); close(s.out) }()
	var feeding sync.WaitGroup
	feeding.Go(func() { h.feed(ctx, s, open.GetOffset(), caught, limit, cancel) })
	defer func() { cancel(); feeding.Wait(); <-ended }()
	for {
		select {
		case m, ok := <-s.out:
			if !ok {
				if ctx.Err() == nil {
					h.t.Errorf("the plugin ended the stream")
				}
				return nil
			}
			if r := m.GetResult(); r != nil {
				return r
			}
			h.take(s, m)
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *smallHost) feed(ctx context.Context, s *memoryStream, from, caught uint64, limit int, broke func()) {
	told, i, lines := false, 0, 0
	for {
		if !told && from >= caught {
			told = true
			s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{Offset: caught}}})
		}
		h.mu.Lock()
		var o *pluginv1.Output
		if i < len(h.output) {
			o = h.output[i]
		}
		exit, news := h.exit, h.news
		h.mu.Unlock()
		switch {
		case o != nil:
			i++
			if end := o.GetOffset() + uint64(len(o.GetData())); end > from {
				s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: o}})
				from = end
				if lines++; limit > 0 && lines >= limit {
					broke()
					return
				}
			}
		case exit != nil:
			s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Exit{Exit: exit}})
			return
		default:
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}
}

// take does what the plugin asks for.
func (h *smallHost) take(s *memoryStream, m *pluginv1.RunResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.changed()
	note := func(format string, args ...any) { h.events = append(h.events, fmt.Sprintf(format, args...)) }
	switch x := m.GetMessage().(type) {
	case *pluginv1.RunResponse_Write:
		if h.keys[x.Write.GetKey()] {
			return
		}
		h.keys[x.Write.GetKey()] = true
		_, _ = h.stdin.Write(x.Write.GetData())
	case *pluginv1.RunResponse_CloseInput:
		_ = h.stdin.Close()
	case *pluginv1.RunResponse_Proposal:
		p := x.Proposal
		if was, known := h.args[p.GetProposalId()]; known && was != string(p.GetArgs()) {
			h.t.Errorf("proposal %s again with %s, was %s", p.GetProposalId(), p.GetArgs(), was)
		}
		h.args[p.GetProposalId()] = string(p.GetArgs())
		if !slices.ContainsFunc(h.props, func(o *pluginv1.Proposal) bool { return o.GetProposalId() == p.GetProposalId() }) {
			h.props = append(h.props, p)
		}
		note("propose %s %s", p.GetTool(), p.GetProvenance())
		if v := h.decide(p); v != nil {
			h.give(s, p, v)
		}
	case *pluginv1.RunResponse_Admit:
		id := x.Admit.GetProposalId()
		if string(x.Admit.GetFingerprint()) != "fp:"+id {
			h.t.Errorf("admit %s with %q", id, x.Admit.GetFingerprint())
		}
		inv := h.made[id]
		if inv == "" {
			inv = fmt.Sprintf("inv-%d", len(h.made)+1)
			h.made[id] = inv
			note("admit")
		} else if _, ended := h.settled[inv]; ended {
			s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Refused{Refused: &pluginv1.Refused{ProposalId: id, Why: "consumed"}}})
			return
		}
		s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Admitted{Admitted: &pluginv1.Admitted{ProposalId: id, InvocationId: inv}}})
	case *pluginv1.RunResponse_Settled:
		if _, again := h.settled[x.Settled.GetInvocationId()]; !again {
			h.settled[x.Settled.GetInvocationId()] = x.Settled.GetOutcome()
			note("settled %s", strings.TrimPrefix(x.Settled.GetOutcome().String(), "OUTCOME_"))
		}
	case *pluginv1.RunResponse_Withdrawn:
		note("withdrawn")
	case *pluginv1.RunResponse_Deferred:
		note("deferred")
	case *pluginv1.RunResponse_Question:
		note("question %s", x.Question.GetPrompt())
		if a := h.answer(x.Question); a != nil {
			a.HitlId = x.Question.GetHitlId()
			s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Answer{Answer: a}})
		}
	case *pluginv1.RunResponse_Checkpoint:
		h.point = x.Checkpoint
	case *pluginv1.RunResponse_Problem:
		h.problem = append(h.problem, x.Problem.GetMessage())
	case *pluginv1.RunResponse_Progress:
		h.prog = append(h.prog, x.Progress)
	case *pluginv1.RunResponse_Interrupted:
		note("interrupted")
	}
}

func (h *smallHost) give(s *memoryStream, p *pluginv1.Proposal, v *pluginv1.Verdict) {
	v.ProposalId, v.Fingerprint = p.GetProposalId(), []byte("fp:"+p.GetProposalId())
	s.give(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Verdict{Verdict: v}})
}

// memoryStream is one stream to the plugin.
type memoryStream struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *pluginv1.RunRequest
	out chan *pluginv1.RunResponse
}

func (s *memoryStream) Context() context.Context { return s.ctx }

func (s *memoryStream) give(m *pluginv1.RunRequest) {
	select {
	case s.in <- m:
	case <-s.ctx.Done():
	}
}

func (s *memoryStream) Recv() (*pluginv1.RunRequest, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *memoryStream) Send(m *pluginv1.RunResponse) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
