package executor

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Engine is what the executor needs of the engine (engine/api.go says what the
// methods promise).
type Engine interface {
	Accept(ctx context.Context, d engine.Dispatch) (engine.Accepted, error)
	Pause(ctx context.Context, missionID, actor, reason string) error
	Resume(ctx context.Context, missionID, actor, reason string) error
	Abort(ctx context.Context, missionID, actor, by, reason string) error
	Answer(ctx context.Context, hitlID, actor, text string) error
	Mission(ctx context.Context, id string) (mission.View, error)
	Questions() []mission.Question
	Agents() []engine.AgentView
	Capabilities() []string
	CapabilitiesChanged() <-chan struct{}
	Owned() []engine.Owned
	TrueState(ctx context.Context, missionID string) (mission.WireEvent, error)
}

// Outbox is what the executor needs of the store.
type Outbox interface {
	// Outbox reads pending items with an id above afterID in the order of ids.
	Outbox(ctx context.Context, afterID int64, limit int) ([]store.OutboxItem, error)
	// OutboxOf reads every pending item of one mission in the order of ids.
	OutboxOf(ctx context.Context, missionID string) ([]store.OutboxItem, error)
	// OutboxDone removes delivered items; unknown ids are ignored.
	OutboxDone(ctx context.Context, ids []int64) error
	// OutboxMarkUndeliverable takes the mission's pending items out of delivery.
	OutboxMarkUndeliverable(ctx context.Context, missionID, why string) error
	// OutboxStats counts items.
	OutboxStats(ctx context.Context) (pending, undeliverable int, err error)
	// OutboxChanged is closed at the next commit that adds an item.
	OutboxChanged() <-chan struct{}
}
