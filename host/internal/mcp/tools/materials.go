package tools

import (
	"context"

	"github.com/airlock-host/airlock/host/internal/mcp/kernel"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// Materials are what _wc.context can ask for: goals, the goals that are active.
func Materials(s workflow.Service) func(ctx context.Context, c kernel.Caller, key string) (value any, ok bool, err error) {
	return func(ctx context.Context, c kernel.Caller, key string) (any, bool, error) {
		if key != "goals" {
			return nil, false, nil
		}
		if !c.May(ScopeRead) {
			return nil, true, &workflow.Error{Kind: "insufficient_scope"}
		}
		active, limit := string(workflow.GoalActive), int64(10)
		page, err := s.ListGoals(ctx, workflow.Caller{Owner: c.Owner}, workflow.ListGoals{Lifecycle: &active, Limit: &limit})
		return page.Goals, true, err
	}
}
