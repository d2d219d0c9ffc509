package apitest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// noTasks is the governed side of an engine that governs nothing; Governed has
// a real one.
type noTasks struct{}

func (noTasks) CreateTask(context.Context, engine.NewTask, string) (string, string, error) {
	return "", "", engine.ErrConflict
}

func (noTasks) TaskToken(context.Context, string, string) ([]string, bool) { return nil, false }

func (noTasks) Propose(context.Context, string, engine.Proposal, time.Duration) (engine.Judged, error) {
	return engine.Judged{}, engine.ErrNotFound
}

func (noTasks) Decision(context.Context, string, string) (engine.Judged, error) {
	return engine.Judged{}, engine.ErrNotFound
}

func (noTasks) Dispatch(context.Context, string, string, string, json.RawMessage) (string, error) {
	return "", engine.ErrNotFound
}

func (noTasks) Complete(context.Context, string, governance.Settled) error { return engine.ErrNotFound }

func (noTasks) Invocation(context.Context, string, string, time.Duration) (engine.InvocationState, error) {
	return engine.InvocationState{}, engine.ErrNotFound
}

func (noTasks) RecordAccess(context.Context, string, governance.Access) error {
	return engine.ErrNotFound
}

func (noTasks) Approve(context.Context, string, engine.Approval) (engine.Reply, error) {
	return engine.Reply{}, engine.ErrNotFound
}

func (noTasks) Resolve(context.Context, string, string, string, string, string) error {
	return engine.ErrNotFound
}

func (noTasks) Waive(context.Context, string, string, string, string) error {
	return engine.ErrNotFound
}

func (noTasks) NewToken(context.Context, string, []string, string) (string, error) {
	return "", engine.ErrNotFound
}

func (noTasks) SetIntent(context.Context, string, *governance.Envelope, string) error {
	return engine.ErrNotFound
}

func (noTasks) SetPlan(context.Context, string, json.RawMessage, string) error {
	return engine.ErrNotFound
}
