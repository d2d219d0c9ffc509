package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

const crashConfig = `
data_dir = "%[1]s/data"
run_dir  = "%[1]s/run"
isolation "fake" "i" {
  config {}
}
runtime "fake" "r" {
  config {}
}
revoker "fake" "bank" {
  config {}
}
agent "a" {
  isolation = isolation.fake.i
  runtime   = runtime.fake.r
  revokers  = [revoker.fake.bank]
  slots     = 8
  queue     = 100
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
    plugin "judge" {
      timeout = "20ms"
    }
  }
  approve {
    rule "pushes" {
      tool = "push"
    }
  }
  head {
    file     = "%[1]s/heads/heads.jsonl"
    key_file = "%[1]s/key/host.key"
  }
}
`

// child is a host that lives one life: store, heads and engine as they are, with
// a world around them.
type child struct {
	dir  string
	l    life
	dice *dice
	met  atomic.Int64
	out  sync.Mutex
	eng  *engine.Engine
	st   *store.Store
}

// tell writes a line that the parent reads, before or after something is done.
func (c *child) tell(words ...string) {
	text, err := json.Marshal(words)
	if err != nil {
		panic(err)
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

// hit ends the life at its point.
func (c *child) hit(point string) {
	if point == c.l.Point && c.met.Add(1) == int64(c.l.Nth) {
		c.tell("at", point)
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func crashChild(dir, text string) error {
	c := &child{dir: dir}
	if err := json.Unmarshal([]byte(text), &c.l); err != nil {
		return err
	}
	c.dice = &dice{rng: rand.New(rand.NewPCG(c.l.Seed, 2))} //nolint:gosec // a test's dice
	cfg, diags := config.Parse([]config.Source{{Name: "crash.hcl", Bytes: fmt.Appendf(nil, crashConfig, dir)}}, config.Options{})
	if diags.HasErrors() {
		return diags
	}
	rules, diags := gate.Compile(cfg.Governance, gate.WithSalt(make([]byte, 32)))
	if diags.HasErrors() {
		return diags
	}
	head := cfg.Governance.Head
	key, err := heads.LoadOrCreateKey(head.KeyFile)
	if err != nil {
		return err
	}
	early := c.l.Seed%5 == 0
	if !c.l.Last && early {
		time.AfterFunc(c.l.After, die) // before anything is opened: it may die in its start
	}
	signed, err := heads.Open(heads.Options{File: head.File, Key: key, Interval: 5 * time.Millisecond, Hook: func(p heads.Point) error { c.hit(string(p)); return nil }})
	if err != nil {
		return err
	}
	c.st, err = store.Open(store.Options{Dir: cfg.DataDir, Heads: signed, Ballast: -1, BlobOver: 1200, Hook: func(p store.Point) error { c.hit(string(p)); return nil }})
	if err != nil {
		return err
	}
	w, err := newWorld(dir, c.l, c.hit, c.dice)
	if err != nil {
		return err
	}
	agent := filepath.Join(dir, "airlock-cell")
	if err := os.WriteFile(agent, []byte("#!/bin/false\n"), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	mgr, err := cells.New(cells.Options{DataDir: cfg.DataDir, RunDir: cfg.RunDir, HostID: "crash", AgentPath: agent, Drivers: w})
	if err != nil {
		return err
	}
	c.eng = engine.New(engine.Options{Config: cfg, HostID: "crash", BootID: "boot", Store: c.st, Plugins: w, Cells: mgr, Rules: rules,
		StopsDir: filepath.Join(dir, "heads", "stops"), SpoolDir: filepath.Join(dir, "heads", "spool"), SealKey: key.Derive("crash"), Log: hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn}),
		Hook: func(p failpoint.Point) error { c.hit(string(p)); return nil }})
	if err := c.eng.Start(context.Background()); err != nil {
		return err
	}
	if !c.l.Last {
		if !early {
			time.AfterFunc(c.l.After, die)
		}
		c.live()
	}
	if err := c.settle(); err != nil {
		return err
	}
	c.eng.Close()
	return errors.Join(c.st.Close(), signed.Close())
}

// tasks of harnesses live through all the lives.
func taskNames() []string { return []string{"h0", "h1", "h2"} }

// live does what is drawn until it is killed.
func (c *child) live() {
	for _, id := range taskNames() {
		_, _, err := c.eng.CreateTask(context.Background(), engine.NewTask{TaskID: id, Objective: "crash"}, "op")
		if err == nil {
			c.tell("opened", id)
		}
		for w := range 2 {
			go c.harness(id, w)
		}
		go c.operate(id)
	}
	go c.missions()
	select {}
}

// harness makes calls. Half of its proposal ids come again in every life: an id
// that was used must not be good for a second call.
func (c *child) harness(task string, w int) {
	ctx := context.Background()
	for n := 0; ; n++ {
		id := fmt.Sprintf("%s-%d-%d", task, w, n)
		if n%2 == 0 {
			id += fmt.Sprintf("-life%d", c.l.N)
		}
		tool, pad := "pay", ""
		if n%3 == 1 {
			tool = "push"
		}
		if n%7 == 5 {
			pad = strings.Repeat("x", 1500)
		}
		args := json.RawMessage(fmt.Sprintf(`{"n":%d,"pad":%q}`, n, pad))
		if c.dice.roll(10) == 0 {
			ref := id + "-session"
			if c.eng.RecordAccess(ctx, task, governance.Access{Kind: "session", Issuer: "bank", Ref: ref}) == nil {
				c.tell("access", task, ref)
			}
		}
		d, err := c.eng.Propose(ctx, task, engine.Proposal{ProposalID: id, Tool: tool, Args: args, Boundary: "harness"}, 0)
		if err != nil {
			time.Sleep(time.Duration(1+c.dice.roll(4)) * time.Millisecond)
			continue
		}
		if d.Decision.Status.Waits() {
			c.approve(task, d.DecisionID)
			if d, err = c.eng.Propose(ctx, task, engine.Proposal{ProposalID: id, Tool: tool, Args: args, Boundary: "harness"}, 0); err != nil {
				continue
			}
		}
		c.dispatch(task, d.DecisionID, tool, args)
	}
}

// approve answers a decision twice at once: one answer counts.
func (c *child) approve(task, decision string) {
	var wg sync.WaitGroup
	for range 2 {
		action := governance.ApproveOnce
		if c.dice.roll(6) == 0 {
			action = governance.Reject
		}
		wg.Go(func() {
			r, err := c.eng.Approve(context.Background(), task, engine.Approval{DecisionID: decision, Action: action, Actor: "op"})
			if err == nil {
				c.tell("answered", task, decision, action, r.ResolvedID)
			}
		})
	}
	wg.Wait()
}

// dispatch tries a decision twice at once: one call may run.
func (c *child) dispatch(task, decision, tool string, args json.RawMessage) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			try := fmt.Sprint(c.l.N, "/", c.met.Add(0), "/", c.dice.roll(1<<30))
			c.tell("tries", task, try)
			inv, err := c.eng.Dispatch(context.Background(), task, decision, tool, args)
			if err != nil {
				return
			}
			c.tell("runs", task, try, decision, inv)
			if c.dice.roll(8) > 0 && c.eng.Complete(context.Background(), task, governance.Settled{InvocationID: inv, Outcome: governance.Succeeded}) == nil {
				c.tell("done", task, inv)
			}
		})
	}
	wg.Wait()
}

// operate pauses, stops and restarts a task.
func (c *child) operate(task string) {
	ctx := context.Background()
	for {
		time.Sleep(time.Duration(1+c.dice.roll(30)) * time.Millisecond)
		switch c.dice.roll(4) {
		case 0:
			if c.eng.PauseGate(ctx, task, "op", "crash") == nil {
				time.Sleep(time.Duration(c.dice.roll(5)) * time.Millisecond)
				_ = c.eng.Resume(ctx, task, "op", "crash")
			}
		case 1:
			if c.eng.Abort(ctx, task, "op", "operator", "crash") == nil {
				c.tell("stopped", task)
			}
		default:
			c.restart(ctx, task)
		}
	}
}

// restart clears what stands in the way of a stopped task and opens it again.
func (c *child) restart(ctx context.Context, task string) {
	st, err := c.eng.TaskStatus(ctx, task)
	if err != nil || st.State != "STOPPED" {
		return
	}
	for _, i := range st.Running {
		_ = c.eng.Complete(ctx, task, governance.Settled{InvocationID: i.InvocationID, Outcome: governance.Unknown})
	}
	for _, i := range st.Unresolved {
		if c.eng.Resolve(ctx, task, i.InvocationID, governance.Unknown, "crash", "op") == nil {
			c.tell("resolved", task, i.InvocationID)
		}
	}
	c.tell("restarts", task)
	_ = c.eng.Restart(ctx, task, "op")
}

// missions start, and are stopped now and then in the middle of it.
func (c *child) missions() {
	ctx := context.Background()
	for n := range 4 {
		id := fmt.Sprintf("m-%d-%d", c.l.N, n)
		_, err := c.eng.Accept(ctx, engine.Dispatch{MissionID: id, Origin: mission.OriginLocal, Objective: "crash", Payload: []byte(id)})
		if err != nil {
			continue
		}
		c.tell("opened", id)
		time.Sleep(time.Duration(c.dice.roll(25)) * time.Millisecond)
		if c.dice.roll(3) == 0 && c.eng.Abort(ctx, id, "op", "operator", "crash") == nil {
			c.tell("stopped", id)
		}
	}
}

// settle stops every task and waits until nothing is owed.
func (c *child) settle() error {
	ctx := context.Background()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		rows, err := c.st.LiveMissions(ctx)
		if err != nil {
			return err
		}
		var open []string
		for _, r := range rows {
			var m mission.Mission
			if err := json.Unmarshal(r.Data, &m); err != nil {
				return err
			}
			switch {
			case !m.Harness:
			case !m.Latched():
				_ = c.eng.Abort(ctx, m.ID, "op", "operator", "the end")
			case m.Stop.Done && !m.Owes() && len(m.Task.Access) == 0:
				continue
			case m.Stop.Done && len(m.Task.Access) > 0:
				_ = c.eng.Abort(ctx, m.ID, "op", "operator", "the end") // restored as stopped: its access is cut by a stop
			}
			open = append(open, fmt.Sprintf("%s (%s, stop %+v, owes %v, access %d, revocation %+v)", m.ID, m.State, m.Stop, m.Owes(), len(m.Task.Access), m.Task.Revocation))
		}
		if left, err := os.ReadDir(filepath.Join(c.dir, "heads", "stops")); err == nil {
			for _, f := range left { // a stop of before is carried on, although the task was stopped already
				open = append(open, "tombstone "+f.Name())
			}
		}
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("it does not come to an end: %s", strings.Join(open, "; "))
		}
	}
}
