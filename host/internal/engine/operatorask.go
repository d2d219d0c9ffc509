package engine

import (
	"context"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// ErrNobodyAnswered says that a question was closed without an answer.
var ErrNobodyAnswered = fmt.Errorf("nobody answered: %w", ErrConflict)

// AskOperator puts a question of a task's agent to a human and waits for the
// answer. ErrNobodyAnswered: it expired, was withdrawn, or the task was stopped.
// When ctx ends the question is withdrawn.
func (e *Engine) AskOperator(ctx context.Context, taskID, prompt string) (string, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return "", err
	}
	sp, err := a.spec()
	if err != nil {
		return "", err
	}
	m := a.settled()
	q := mission.Question{HITLID: newUUID(), MissionID: a.id, SessionID: m.SessionID, Prompt: prompt, Source: mission.SourceMCP, AskedAt: e.now().UTC()}
	q.SourceID = q.HITLID
	if sp.QuestionTimeout > 0 {
		at := q.AskedAt.Add(sp.QuestionTimeout)
		q.ExpiresAt = &at
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sp.QuestionTimeout)
		defer cancel()
	}
	answer := make(chan string, 1)
	e.answers.Store(q.HITLID, answer)
	defer e.answers.Delete(q.HITLID)
	if err := a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Ask(m.Generation, q) }, nil); err != nil {
		return "", err
	}
	for {
		changed := a.next()
		if _, open := a.questionNow(q.HITLID); !open {
			select {
			case text := <-answer:
				return text, nil
			default:
				return "", ErrNobodyAnswered
			}
		}
		select {
		case <-changed:
		case <-a.launchCtx().Done():
			e.closeQuestion(a, q.HITLID, "withdrawn")
			return "", ErrNobodyAnswered
		case <-ctx.Done():
			outcome := "withdrawn"
			if q.ExpiresAt != nil && !e.now().Before(*q.ExpiresAt) {
				outcome = "expired"
			}
			e.closeQuestion(a, q.HITLID, outcome)
			select { // it may have been answered just now
			case text := <-answer:
				return text, nil
			default:
				return "", ErrNobodyAnswered
			}
		}
	}
}

// answerMCP gives an answer to the call that waits for it.
func (e *Engine) answerMCP(a *actor, hitlID, actor, text string) error {
	a.ops.Lock()
	defer a.ops.Unlock()
	to, waits := e.answers.Load(hitlID)
	outcome := "answered"
	if !waits { // the call ended with an earlier life of the host
		outcome, actor = "withdrawn", ""
	} else {
		select { // first: whoever sees the question closed finds the answer
		case to.(chan string) <- text:
		default:
			return fmt.Errorf("the question was answered or withdrawn: %w", ErrConflict)
		}
	}
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(hitlID, outcome, actor) }, nil)
	switch {
	case err != nil:
		return fmt.Errorf("the question was answered or withdrawn: %w: %w", ErrConflict, err)
	case !waits:
		return fmt.Errorf("the agent does not wait for this answer any more: %w", ErrConflict)
	}
	return nil
}

// closeOrphans closes what calls over MCP left open that ended with an earlier
// life of the host: their questions, and the calls themselves, of which nobody
// knows what became.
func (e *Engine) closeOrphans(a *actor) {
	for _, i := range a.state().Task.Running {
		if _, mine := a.overMCP.Load(i.ID); i.Boundary == governance.BoundaryMCP && !mine {
			_ = e.settle(a, governance.Settled{InvocationID: i.ID, Outcome: governance.Unknown, Error: "the host was restarted while it ran"})
		}
	}
	for _, q := range a.state().Questions {
		if _, waits := e.answers.Load(q.HITLID); q.Source == mission.SourceMCP && !waits {
			e.closeQuestion(a, q.HITLID, "withdrawn")
		}
	}
}
