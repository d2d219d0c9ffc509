package workflow

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// GetGoal reads a goal.
func (k *Keeper) GetGoal(ctx context.Context, by Caller, in GetGoal) (GoalView, error) {
	return view(ctx, k, ofGoals, func(r Reader) (GoalView, error) {
		if err := goalID(in.GoalID); err != nil {
			return GoalView{}, err
		}
		g, err := loadGoal(r, by.Owner.Digest(), in.GoalID)
		if err != nil {
			return GoalView{}, err
		}
		return g.view(), nil
	})
}

// ListGoals reads a page of goals, the last updated first.
func (k *Keeper) ListGoals(ctx context.Context, by Caller, in ListGoals) (GoalPage, error) {
	return view(ctx, k, ofGoals, func(r Reader) (GoalPage, error) {
		page := GoalPage{Offset: int(value(in.Offset)), Goals: []GoalSummary{}}
		limit := int64(50)
		if in.Limit != nil {
			limit = *in.Limit
		}
		bad := func(text string) error { return refuse("invalid_goal_query", FixInput, text) }
		if page.Offset < 0 || value(in.Offset) > 1<<31 {
			return page, bad("offset must be 0 or more")
		}
		if limit < 1 || limit > 100 {
			return page, bad("limit must be 1 to 100")
		}
		if l := in.Lifecycle; l != nil && !slices.Contains([]GoalLifecycle{GoalActive, GoalCompleted, GoalCancelled}, GoalLifecycle(*l)) {
			return page, bad("lifecycle must be active, completed or cancelled")
		}
		query := strings.ToLower(trimmed(value(in.Query)))
		if chars(query) > maxTitle {
			return page, bad("query must have at most 200 characters")
		}
		goals, err := list[goal](r, Query{Table: TableGoals, By: ByOwner, Owner: by.Owner.Digest()})
		if err != nil {
			return page, err
		}
		goals = slices.DeleteFunc(goals, func(g *goal) bool {
			return in.Lifecycle != nil && string(g.Summary.Lifecycle) != *in.Lifecycle ||
				!strings.Contains(strings.ToLower(g.Summary.Title), query)
		})
		slices.SortStableFunc(goals, func(a, b *goal) int {
			return cmp.Or(cmp.Compare(b.Summary.UpdatedAt, a.Summary.UpdatedAt), cmp.Compare(a.Summary.GoalID, b.Summary.GoalID))
		})
		page.TotalCount = len(goals)
		for _, g := range goals[min(page.Offset, len(goals)):] {
			if len(page.Goals) == int(limit) {
				next := page.Offset + int(limit)
				page.NextOffset, page.Truncated = &next, true
				break
			}
			page.Goals = append(page.Goals, g.Summary)
		}
		return page, nil
	})
}
