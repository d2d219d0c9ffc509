package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// noPlugins is a catalog for tasks that need none.
type noPlugins struct{ engine.Plugins }

func (noPlugins) Capabilities(string) ([]string, error) { return nil, engine.ErrNotFound }
func (noPlugins) Features(string) []string              { return nil }
func (noPlugins) Changed() <-chan struct{}              { return nil }

// checkpointer is one client: a mission, its goal and how far it is.
type checkpointer struct {
	owner    workflow.Owner
	goal     string
	revision int64
}

// next records a checkpoint.
func (c *checkpointer) next(ctx context.Context, k *workflow.Keeper) error {
	step := fmt.Sprint("s", c.revision%8)
	r, err := k.CheckpointGoal(ctx, workflow.Caller{Owner: c.owner}, workflow.CheckpointGoal{GoalID: c.goal, ExpectedRevision: c.revision,
		CompletedStepIDs: []string{step}, Summary: "edited a file and ran the tests", IdempotencyKey: fmt.Sprint("k", c.revision)})
	if err == nil {
		c.revision = r.Goal.Summary.Revision
	}
	return err
}

// measureCheckpoints measures durable checkpoints by 16 clients. Each is a
// change of a goal with its idempotency row and, in the same commit, the
// mission's progress and plan in the journal. All clients work at once, each on
// the goal of its own mission.
func measureCheckpoints(b *bench) (err error) {
	const clients = 16
	dir, err := os.MkdirTemp(b.dir, "w")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e, end, err := bareEngine(b, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	k := e.Workflow()
	who := make([]*checkpointer, clients)
	for i := range who {
		id := fmt.Sprint("mission-", i)
		if _, _, err := e.CreateTask(b.ctx, engine.NewTask{TaskID: id, Objective: "build it"}, "bench"); err != nil {
			return err
		}
		in := workflow.CreateGoal{Title: "build it", Objective: "build it", IdempotencyKey: "goal"}
		for s := range 8 {
			in.Steps = append(in.Steps, workflow.NewStep{ID: fmt.Sprint("s", s), Title: "a step of the plan"})
		}
		made, err := k.CreateGoal(b.ctx, workflow.Caller{Owner: workflow.Owner(id)}, in)
		if err != nil {
			return err
		}
		who[i] = &checkpointer{owner: workflow.Owner(id), goal: made.Goal.Summary.GoalID, revision: 1}
	}
	var rates []float64
	total := 0
	for range b.rounds(5, 2) {
		rate, n, err := perSecond(b.ctx, clients, func(w int) error { return who[w].next(b.ctx, k) })
		if err != nil {
			return err
		}
		rates, total = append(rates, rate), total+n
	}
	b.emit("checkpoints_per_s", "1/s", median(rates), 0, total, spread(rates))
	return nil
}

// bareEngine is an engine over a real store, for tasks without a cell.
func bareEngine(b *bench, dir string) (*engine.Engine, func() error, error) {
	conf := filepath.Join(dir, "airlock.hcl")
	err := errors.Join(os.WriteFile(conf, []byte(hostConfig(dir, b.bin, "http://127.0.0.1:1", "")), 0o600),
		os.WriteFile(filepath.Join(dir, "operator.token"), []byte(strings.Repeat("k3y-", 10)), 0o600))
	if err != nil {
		return nil, nil, err
	}
	cfg, diags := config.Load(conf, config.Options{})
	if diags.HasErrors() {
		return nil, nil, fmt.Errorf("configuration: %w", diags)
	}
	rules, diags := gate.Compile(cfg.Governance)
	if diags.HasErrors() {
		return nil, nil, fmt.Errorf("rules: %w", diags)
	}
	cfg.Agents, cfg.Instances = nil, nil
	s, closeStore, err := openStore(dir)
	if err != nil {
		return nil, nil, err
	}
	mgr, err := cells.New(cells.Options{DataDir: cfg.DataDir, RunDir: cfg.RunDir, HostID: "bench", AgentPath: filepath.Join(b.bin, "airlock-cell")})
	if err != nil {
		return nil, nil, errors.Join(err, closeStore())
	}
	e := engine.New(engine.Options{Config: cfg, HostID: "bench", Store: s, Plugins: noPlugins{}, Cells: mgr, Rules: rules,
		WorkflowKey: make([]byte, 32), Log: hclog.NewNullLogger()})
	end := func() error {
		e.Close()
		return closeStore()
	}
	if err := e.Start(b.ctx); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return e, end, nil
}
