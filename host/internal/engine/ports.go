package engine

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Store is what the engine needs of the durable store. *store.Store is one.
type Store interface {
	// Commit makes a batch durable (fsynced) and visible, or changes nothing.
	Commit(ctx context.Context, b store.Batch) error
	// Mission reads one mission; store.ErrNotFound when there is none.
	Mission(ctx context.Context, id string) (store.MissionRow, error)
	// Missions reads a page, newest first; next is the cursor, empty at the end.
	Missions(ctx context.Context, f store.MissionFilter) (rows []store.MissionRow, next string, err error)
	// LiveMissions reads every mission that is not terminal, oldest first.
	LiveMissions(ctx context.Context) ([]store.MissionRow, error)
	// Retired is what is kept of a mission that was archived and removed;
	// store.ErrNotFound when there is none.
	Retired(ctx context.Context, taskID string) (store.Retired, error)
	// Cells reads every cell row.
	Cells(ctx context.Context) ([]store.CellRow, error)
	// RuntimeState reads a runtime checkpoint; store.ErrNotFound when there is none.
	RuntimeState(ctx context.Context, missionID string) (store.RuntimeState, error)
	// Events reads a task's events with a sequence above after, in order.
	Events(ctx context.Context, task string, after uint64, limit int) ([]journal.Event, error)
	// Head reads a task's head; store.ErrNotFound when there is none.
	Head(ctx context.Context, taskID string) (journal.Head, error)
	// VerifyRecent checks a task's chain from its last signed prefix on against its
	// trusted head (rulings 43).
	VerifyRecent(ctx context.Context, taskID string) error
	// ViewWork shows the workflow's committed rows, at one moment.
	ViewWork(ctx context.Context, f func(workflow.Reader) error) error
	// VerifyTask checks a task's whole chain; a *journal.ChainError says where it is
	// bad.
	VerifyTask(ctx context.Context, taskID string) error
	// Healthy is nil while commits are possible, else why not.
	Healthy() error
}

// Plugins is what the engine needs of the plugin catalog. Refs are
// config.Instance.Ref values. An error says why the instance cannot be used.
type Plugins interface {
	Isolation(ref string) (pluginv1.IsolationClient, error)
	Runtime(ref string) (pluginv1.RuntimeClient, error)
	Revoker(ref string) (pluginv1.RevokerClient, error)
	Policy(ref string) (pluginv1.PolicyClient, error)
	// Capabilities of an instance when it is healthy, else why it is not.
	Capabilities(ref string) ([]string, error)
	// Features that the instance's plugin declares.
	Features(ref string) []string
	// Attributes are what a healthy instance says of itself, such as
	// "limit.disk": "not-enforced:REASON".
	Attributes(ref string) map[string]string
	// Needs that the instance's plugin declares.
	Needs(ref string) []*pluginv1.Need
	// Build is the version and the SHA-256 of the program that the instance runs
	// with; empty while it has none.
	Build(ref string) (version, sha256 string)
	// Changed is closed at the next change of any instance's health.
	Changed() <-chan struct{}
}
