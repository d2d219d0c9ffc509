package engine

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/mission"
)

// Spent adds to what a mission has used: tokens, and millionths of a US dollar.
func (e *Engine) Spent(ctx context.Context, missionID string, tokens, costMicro int64) error {
	a, err := e.living(ctx, missionID)
	if err != nil {
		return err
	}
	return a.spent(tokens, costMicro)
}

func (a *actor) spent(tokens, costMicro int64) error {
	if tokens == 0 && costMicro == 0 {
		return nil
	}
	return a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Spend(tokens, costMicro) }, nil)
}
