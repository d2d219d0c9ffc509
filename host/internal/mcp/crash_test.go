package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// The environment of the test binary when it plays a host that is killed.
const (
	childDir    = "AIRLOCK_MCP_CHILD"
	childPoint  = "AIRLOCK_MCP_POINT"  // it kills itself at this point of the store,
	childNth    = "AIRLOCK_MCP_NTH"    // when it comes there for the nth time after it was armed
	childInMain = "AIRLOCK_MCP_INMAIN" // or while a command runs that has had its effect
)

// crashChild is the endpoint over a directory, behind HTTP. It prints its address
// and runs until it is killed. A command has one effect: a line in its owner's
// file. GET /arm makes it count.
func crashChild(dir string) error {
	at := store.Point(os.Getenv(childPoint))
	nth, _ := strconv.ParseInt(os.Getenv(childNth), 10, 64)
	var armed atomic.Bool
	var met atomic.Int64
	kill := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }
	h, err := openHost(dir, func(p store.Point) error {
		if armed.Load() && p == at && met.Add(1) == nth {
			kill()
		}
		return nil
	}, 0)
	if err != nil {
		return err
	}
	h.doing(func(_ context.Context, owner string, c engine.CellCommand) error {
		f, err := os.OpenFile(filepath.Join(dir, "effects-"+owner), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(c.Argv[1] + "\n")
		if err = errors.Join(err, f.Close()); armed.Load() && os.Getenv(childInMain) != "" {
			kill()
		}
		return err
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h.server.HTTP())
	mux.HandleFunc("/arm", func(http.ResponseWriter, *http.Request) { armed.Store(true) })
	mux.HandleFunc("/mission", func(w http.ResponseWriter, r *http.Request) {
		o := workflow.Owner(r.FormValue("owner"))
		if err := errors.Join(h.observe(o, workflow.MissionStarting), h.observe(o, workflow.MissionStarted)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	fmt.Println("http://" + l.Addr().String())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// victim is a child and where it listens.
type victim struct {
	url  string
	cmd  *exec.Cmd
	dead chan struct{}
}

func startVictim(t testing.TB, dir string, env ...string) *victim {
	t.Helper()
	v := &victim{cmd: exec.Command(os.Args[0]), dead: make(chan struct{})}
	v.cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	v.cmd.Stderr = os.Stderr
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child did not start: %v", errors.Join(err, v.cmd.Wait()))
	}
	v.url = strings.TrimSpace(line)
	go func() { _ = v.cmd.Wait(); close(v.dead) }()
	t.Cleanup(v.kill)
	return v
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	<-v.dead
}

func (v *victim) get(path string) error {
	resp, err := http.Get(v.url + path) //nolint:noctx // a test's own child
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %d %s", path, resp.StatusCode, text)
	}
	return nil
}

// errLost says that the host has gone while it was asked.
var errLost = errors.New("the host has gone")

// agent is a client with a mission of its own, that makes numbered composite
// calls: a checkpoint before, a command with one effect, a todo after.
type agent struct {
	name string
	url  func() string
	http *http.Client
	ctx  workflow.MissionContext
	last numbered
}

// call calls a tool. The error is errLost, or says that the answer is none.
func (a *agent) call(tool, nonce, args string) (out json.RawMessage, kind string, err error) {
	body := callBody(Revision, tool, args)
	if nonce != "" {
		body = strings.Replace(body, `"_meta":{`, `"_meta":{"`+metaNonce+`":"`+nonce+`",`, 1)
	}
	req, err := http.NewRequest(http.MethodPost, a.url()+"/mcp", strings.NewReader(body)) //nolint:noctx // ends with the child
	if err != nil {
		return nil, "", err
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + a.name,
		"MCP-Protocol-Version": Revision, "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		req.Header.Set(k, v)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, "", errLost
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, "", errLost
	}
	var rpc struct {
		Result struct {
			Content struct {
				Error  *string         `json:"error"`
				Output json.RawMessage `json:"output"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &rpc); err != nil || rpc.Result.Content.Output == nil {
		return nil, "", fmt.Errorf("%s: %d %s", tool, resp.StatusCode, text)
	}
	if e := rpc.Result.Content.Error; e != nil {
		kind, _, _ = strings.Cut(*e, ":")
	}
	return rpc.Result.Content.Output, kind, nil
}

// ask is call for what must succeed.
func (a *agent) ask(tool, args string, into any) error {
	out, kind, err := a.call(tool, "", args)
	switch {
	case err != nil:
		return err
	case kind != "":
		return fmt.Errorf("%s: %s: %s", tool, kind, out)
	case into == nil:
		return nil
	}
	return json.Unmarshal(out, into)
}

// numbered is the i-th composite call's parts.
type numbered struct {
	i                     int
	checkpoint, done, all string
}

// prepare posts the i-th todo, or finds it: its delivery key is the number. A
// call that is made again is the same call, with the same fence.
func (a *agent) prepare(i int) (n numbered, err error) {
	if a.last.i == i {
		return a.last, nil
	}
	if a.ctx.GoalID == "" {
		if err := a.ask("get_mission_context", `{}`, &a.ctx); err != nil {
			return n, err
		}
	}
	var p workflow.PostResult
	if err := a.ask("post_session_message", fmt.Sprintf(`{"session_id":%q,"kind":"todo","message":"todo %d","delivery_key":"d%d"}`, a.ctx.SessionID, i, i), &p); err != nil {
		return n, err
	}
	var as workflow.Assignment
	if err := a.ask("get_session_assignment", fmt.Sprintf(`{"session_id":%q,"message_id":%q}`, a.ctx.SessionID, p.Message.MessageID), &as); err != nil {
		return n, err
	}
	n.i = i
	n.checkpoint = fmt.Sprintf(`{"goal_id":%q,"expected_revision":%d,"summary":"call %d","idempotency_key":"k%d"}`, a.ctx.GoalID, i, i, i)
	n.done = fmt.Sprintf(`{"session_id":%q,"message_id":%q,"answer":"answer %d","completion_key":"c%d","expected_assignment_fence":%q}`,
		a.ctx.SessionID, p.Message.MessageID, i, i, as.Fence)
	n.all = fmt.Sprintf(`{"project":%q,"executable":"effect","args":["%d"],"_wc":{"control":{"before":{"goal_progress":%s},"after_success":{"todo_completion":%s}}}}`,
		a.ctx.Project, i, n.checkpoint, n.done)
	a.last = n
	return n, nil
}

// make makes the i-th call as docs/control-sidecars.md tells a client to: what
// was answered counts; what was not is looked up by its nonce, and then the call
// is sent again, or only what follows main is made up for by the canonical
// tools. effect says whether main has had its effect: how a client looks at what
// a command of which nobody knows has done.
func (a *agent) make(i int, again bool, effect func() bool) error {
	n, err := a.prepare(i)
	if err != nil {
		return err
	}
	nonce := "n" + strconv.Itoa(i)
	if again {
		state, err := a.lookUp(nonce)
		if err != nil {
			return err
		}
		if state == workflow.Unknown && !effect() {
			state = workflow.NeverStarted
		}
		if state == workflow.Succeeded || state == workflow.Unknown {
			return errors.Join(a.ask("checkpoint_goal", n.checkpoint, nil), a.ask("complete_session_message", n.done, nil))
		}
	}
	out, kind, err := a.call("run_command", nonce, n.all)
	if err != nil {
		return err
	}
	var o struct {
		Control struct {
			Before, After struct{ Success bool }
			AfterSuccess  struct{ Success bool } `json:"after_success"`
		} `json:"control"`
	}
	if err := json.Unmarshal(out, &o); err != nil || kind != "" || !o.Control.Before.Success || !o.Control.AfterSuccess.Success {
		return fmt.Errorf("call %d of %s: %s: %s", i, a.name, kind, out)
	}
	return nil
}

// lookUp asks what became of main of the newest call with a nonce.
func (a *agent) lookUp(nonce string) (workflow.ExecutionState, error) {
	out, kind, err := a.call("get_invocation_outcome", "", `{"nonce":"`+nonce+`"}`)
	switch {
	case err != nil:
		return "", err
	case kind == "invocation_not_found":
		return workflow.NeverStarted, nil
	case kind != "":
		return "", fmt.Errorf("%s: %s", kind, out)
	}
	var o workflow.CallOutcome
	err = json.Unmarshal(out, &o)
	return o.Main.State, err
}

// number is a count from the environment, or a default.
func number(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// acceptS kills a host at each commit of a composite call, before and after it is
// durable, and while main runs; starts it again, and goes on as a client does
// (the crash-point table, section 10).
func acceptS(t *testing.T) {
	type at struct {
		commit  int // which commit of the call; 0: in main
		point   store.Point
		main    workflow.ExecutionState // as the journal has it afterwards
		before  bool                    // the checkpoint is committed
		after   bool                    // the todo is completed
		effects int
	}
	rows := []at{
		{1, store.PointApplied, workflow.NeverStarted, false, false, 0},
		{1, store.PointCommitted, workflow.NeverStarted, true, false, 0},
		{2, store.PointApplied, workflow.NeverStarted, true, false, 0},
		{2, store.PointCommitted, workflow.Unknown, true, false, 0},
		{0, "", workflow.Unknown, true, false, 1},
		{3, store.PointApplied, workflow.Unknown, true, false, 1},
		{3, store.PointCommitted, workflow.Succeeded, true, false, 1},
		{4, store.PointApplied, workflow.Succeeded, true, false, 1},
		{4, store.PointCommitted, workflow.Succeeded, true, true, 1},
	}
	for _, row := range rows {
		t.Run(fmt.Sprint(row.commit, " ", row.point), func(t *testing.T) {
			dir := t.TempDir()
			env := []string{childPoint + "=" + string(row.point), childNth + "=" + strconv.Itoa(row.commit)}
			if row.commit == 0 {
				env = []string{childInMain + "=1"}
			}
			v := startVictim(t, dir, env...)
			a := &agent{name: "m", url: func() string { return v.url }, http: &http.Client{}}
			defer a.http.CloseIdleConnections()
			if err := v.get("/mission?owner=m"); err != nil {
				t.Fatal(err)
			}
			n, err := a.prepare(1)
			if err == nil {
				err = v.get("/arm")
			}
			if err != nil {
				t.Fatal(err)
			}
			if out, _, err := a.call("run_command", "n1", n.all); !errors.Is(err, errLost) {
				t.Fatalf("the call was answered: %s %v", out, err)
			}
			<-v.dead
			effects := func() int { return len(lines(t, dir, "m")) }
			v = startVictim(t, dir)
			if state, err := a.lookUp("n1"); err != nil || state != row.main {
				t.Errorf("main is %s, want %s: %v", state, row.main, err)
			}
			var g workflow.GoalView
			var as workflow.Assignment
			err = errors.Join(a.ask("get_goal", `{"goal_id":"`+a.ctx.GoalID+`"}`, &g), a.ask("get_session_assignment", strings.Split(n.done, `,"answer"`)[0]+`}`, &as))
			if err != nil {
				t.Fatal(err)
			}
			if (g.Summary.Revision == 2) != row.before || (as.Todo.Status == "resolved") != row.after || effects() != row.effects {
				t.Errorf("revision %d, todo %s, %d effects", g.Summary.Revision, as.Todo.Status, effects())
			}
			if err := a.make(1, true, func() bool { return effects() > 0 }); err != nil {
				t.Fatal(err)
			}
			a.complete(t, dir, 1)
			v.kill()
			answered(t, dir, 1, a)
		})
	}
}

// lines are the effects of an owner's commands.
func lines(t testing.TB, dir, owner string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "effects-"+owner))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// complete compares an agent's whole state with the model: n calls made, each
// once. The goal has moved n times, each todo has its one answer, each effect
// is there once, and none is of a call that the journal says never ran.
func (a *agent) complete(t testing.TB, dir string, n int) {
	t.Helper()
	var g workflow.GoalView
	if err := a.ask("get_goal", `{"goal_id":"`+a.ctx.GoalID+`"}`, &g); err != nil {
		t.Fatal(err)
	}
	if g.Summary.Revision != int64(n)+1 || g.Plan.ProgressSummary != fmt.Sprint("call ", n) {
		t.Errorf("%s: after %d calls the goal has revision %d: %q", a.name, n, g.Summary.Revision, g.Plan.ProgressSummary)
	}
	ran := map[string]int{}
	for _, line := range lines(t, dir, a.name) {
		ran[line]++
	}
	for i := 1; i <= n; i++ {
		if ran[strconv.Itoa(i)] != 1 {
			t.Errorf("%s: main of call %d ran %d times", a.name, i, ran[strconv.Itoa(i)])
		}
		p, err := a.prepare(i) // finds the todo that is there
		if err != nil {
			t.Fatal(err)
		}
		var as workflow.Assignment
		if err := a.ask("get_session_assignment", strings.Split(p.done, `,"answer"`)[0]+`}`, &as); err != nil {
			t.Fatal(err)
		}
		if as.Todo.Status != "resolved" {
			t.Errorf("%s: todo %d is %s", a.name, i, as.Todo.Status)
		}
		if state, err := a.lookUp("n" + strconv.Itoa(i)); err != nil || state == workflow.NeverStarted {
			t.Errorf("%s: call %d ran, and the journal says %s: %v", a.name, i, state, err)
		}
	}
}

// TestNoCallIsLostOrDoubled: sixteen clients make composite calls over HTTP to a
// host that is killed again and again, from outside and at points of its store,
// and do after each loss what the docs tell them to. In the end no mutation and
// no effect of a main call is missing or there twice. AIRLOCK_ORACLE sets the
// number of calls (10,000 in `make test-oracle`).
func TestNoCallIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	const clients = 16
	total := number(t, "AIRLOCK_ORACLE", 240)
	each, crashes := (total+clients-1)/clients, 6+total/200
	dir := t.TempDir()
	points := store.Points()
	var now atomic.Pointer[victim]
	now.Store(startVictim(t, dir))
	agents := make([]*agent, clients)
	for i := range agents {
		a := &agent{name: fmt.Sprint("m-", i), url: func() string { return now.Load().url }, http: &http.Client{}}
		defer a.http.CloseIdleConnections()
		if err := now.Load().get("/mission?owner=" + a.name); err != nil {
			t.Fatal(err)
		}
		agents[i] = a
	}
	defer http.DefaultClient.CloseIdleConnections()
	var made atomic.Int64
	var wg sync.WaitGroup
	for _, a := range agents {
		wg.Go(func() {
			for i := 1; i <= each; i++ {
				lost := 0
				for {
					at := now.Load()
					err := a.make(i, lost > 0, func() bool { return has(lines(t, dir, a.name), i) })
					if err == nil {
						break
					}
					if !errors.Is(err, errLost) || lost > 1000 {
						t.Errorf("%s, call %d: %v", a.name, i, err)
						return
					}
					lost++
					for now.Load() == at && !t.Failed() { // until the next host is there
						time.Sleep(2 * time.Millisecond)
					}
				}
				made.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for n := 1; n <= crashes; n++ {
		v := now.Load()
		until := made.Load() + rand.Int64N(int64(2*total/(crashes+1)+1))
		for at := time.Now(); made.Load() < until && time.Since(at) < time.Minute; {
			select {
			case <-done:
			case <-v.dead: // at a point of its store
			case <-time.After(2 * time.Millisecond):
				continue
			}
			break
		}
		v.kill()
		var env []string
		if n < crashes && n%2 == 0 {
			env = []string{childPoint + "=" + string(points[rand.IntN(len(points))]), childNth + "=" + strconv.Itoa(1+rand.IntN(80))}
		}
		next := startVictim(t, dir, env...)
		if env != nil {
			_ = next.get("/arm")
		}
		now.Store(next)
	}
	<-done
	if t.Failed() {
		return
	}
	for _, a := range agents {
		a.complete(t, dir, each)
	}
	now.Load().kill()
	answered(t, dir, each, agents...)
	t.Logf("%d calls, %d crashes", made.Load(), crashes)
}

// answered looks into the store of a host that is dead: each of an agent's todos
// has its answer once, and there is no other message.
func answered(t *testing.T, dir string, n int, agents ...*agent) {
	t.Helper()
	h, err := openHost(dir, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	for _, a := range agents {
		texts := map[string]int{}
		err := h.store.ViewWork(t.Context(), func(r workflow.Reader) error {
			rows, err := r.List(workflow.Query{Table: workflow.TableMessages, By: workflow.ByParent, Key: a.ctx.SessionID})
			for _, row := range rows {
				var m workflow.MessageView
				if err := json.Unmarshal(row.Data, &m); err != nil {
					return err
				}
				texts[m.Message]++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= n; i++ {
			if texts[fmt.Sprint("todo ", i)] != 1 || texts[fmt.Sprint("answer ", i)] != 1 {
				t.Errorf("%s: todo %d is there %d times, its answer %d times", a.name, i, texts[fmt.Sprint("todo ", i)], texts[fmt.Sprint("answer ", i)])
			}
		}
		if len(texts) != 2*n {
			t.Errorf("%s: %d different messages", a.name, len(texts))
		}
	}
}

func has(lines []string, i int) bool {
	for _, l := range lines {
		if l == strconv.Itoa(i) {
			return true
		}
	}
	return false
}
