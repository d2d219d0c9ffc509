package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
	"github.com/airlock-host/airlock/host/internal/store"
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	cell "github.com/airlock-host/airlock/sdk/cell"
)

// answerWait bounds the writing of an answer.
const answerWait = 15 * time.Second

// questionSpace makes question ids that are the same after a replay.
var questionSpace = uuid.MustParse("6f0d3b52-4d0e-5b0e-9a3c-6f2f7c1f9a11")

// questionID is the host's id of a question: unique over all missions, and the
// same for the same question.
func (s *liveSession) questionID(source, id string) string {
	generation := fmt.Sprint(s.gen)
	if source == mission.SourceRuntime && s.byMessage() {
		generation = "" // its runtime puts it again in a further session
	}
	name := strings.Join([]string{s.a.id, generation, source, id}, "\x00")
	return uuid.NewSHA1(questionSpace, []byte(name)).String()
}

func (s *liveSession) ask(q *cellv1.Ask) {
	s.put(mission.Question{Prompt: q.GetPrompt(), Context: q.GetContext(), Source: "ask", SourceID: q.GetAskId()})
}

// matchAsks takes up the questions that wait in the cell, and closes those
// whose asker went away while the link was down.
func (s *liveSession) matchAsks(asks []*cellv1.Ask) {
	waiting := map[string]bool{}
	for _, ask := range asks {
		waiting[ask.GetAskId()] = true
		s.ask(ask)
	}
	for _, q := range s.a.state().Questions {
		if q.Source == "ask" && !waiting[q.SourceID] {
			s.closeQuestion(q.HITLID, "withdrawn")
		}
	}
}

// byMessage says that the runtime gets answers as messages, and writes them to
// its agent itself.
func (s *liveSession) byMessage() bool {
	return s.plan.GetBoundary() == pluginv1.Boundary_BOUNDARY_PROTOCOL
}

// question puts a question of the runtime, or answers it when it was answered
// before: the runtime may have been away meanwhile.
func (s *liveSession) question(q *pluginv1.Question) {
	if s.byMessage() {
		m := s.a.settled()
		id := s.questionID(mission.SourceRuntime, q.GetHitlId())
		if text, ok := m.Reply(id); ok {
			s.rt.answer(q.GetHitlId(), text, "")
			return
		}
		if slices.Contains(m.Closed, id) {
			s.rt.answer(q.GetHitlId(), "", "expired")
			return
		}
	}
	s.put(mission.Question{Prompt: withOptions(q), Context: q.GetContext(), Options: q.GetOptions(), Source: mission.SourceRuntime, SourceID: q.GetHitlId()})
}

// withOptions is a question's prompt; options that it does not name itself
// follow it, since the orchestrator shows the prompt alone.
func withOptions(q *pluginv1.Question) string {
	for _, o := range q.GetOptions() {
		if !strings.Contains(q.GetPrompt(), o) {
			return q.GetPrompt() + "\nOptions: " + strings.Join(q.GetOptions(), " | ")
		}
	}
	return q.GetPrompt()
}

// put journals a question. A terminal has one reader: a new question that is
// answered there closes the older one.
func (s *liveSession) put(q mission.Question) {
	q.HITLID = s.questionID(q.Source, q.SourceID)
	q.MissionID, q.SessionID, q.AskedAt = s.a.id, s.id, s.eng.now().UTC()
	q.ByMessage = q.Source == mission.SourceRuntime && s.byMessage()
	if q.Prompt == "" {
		q.Prompt = "(no prompt)"
	}
	if s.spec.QuestionTimeout > 0 {
		at := q.AskedAt.Add(s.spec.QuestionTimeout)
		q.ExpiresAt = &at
	}
	for _, old := range s.a.state().Questions {
		if q.Source == mission.SourceRuntime && old.Source == q.Source && old.HITLID != q.HITLID && !s.byMessage() {
			s.closeQuestion(old.HITLID, "withdrawn")
		}
	}
	if err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Ask(s.gen, q) }, nil); err != nil {
		s.eng.log.Debug("question was not taken", "mission", s.a.id, "error", err)
	}
}

func (s *liveSession) closeQuestion(hitlID, outcome string) {
	s.eng.closeQuestion(s.a, hitlID, outcome)
}

func (e *Engine) closeQuestion(a *actor, hitlID, outcome string) {
	err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(hitlID, outcome, "") }, nil)
	if err != nil && !errors.Is(err, mission.ErrIllegal) {
		e.log.Warn("question could not be closed", "mission", a.id, "error", err)
	}
}

// settleAnswered closes questions whose answer was written to the session just
// before the host went away.
func (s *liveSession) settleAnswered(keys []string) {
	for _, q := range s.a.state().Questions {
		if slices.Contains(keys, inputKey(q.HITLID)) {
			s.closeQuestion(q.HITLID, "answered")
		}
	}
}

func inputKey(hitlID string) string { return "hitl:" + hitlID }

// Questions lists what waits for a human, oldest first.
func (e *Engine) Questions() []mission.Question {
	list := []mission.Question{}
	for _, a := range e.live() {
		m := a.settled()
		list = append(list, m.Questions...)
	}
	slices.SortStableFunc(list, func(x, y mission.Question) int { return x.AskedAt.Compare(y.AskedAt) })
	return list
}

// Answer writes a human's answer to the session and then says so. The first
// answer wins: ErrConflict when the question is closed already or the mission
// cannot take it now, ErrNotFound when there is no such question.
func (e *Engine) Answer(ctx context.Context, hitlID, actor, text string) error {
	a, err := e.asking(hitlID)
	if err != nil {
		return err
	}
	if q, _ := a.questionNow(hitlID); q.Source == mission.SourceApproval {
		return fmt.Errorf("%q is a decision of the gate and not a question of the agent: answer it with `airlock approve %s approve_once|reject|modify_intent|ask_agent_to_replan|stop_agent`: %w", hitlID, hitlID, ErrConflict)
	}
	if q, _ := a.questionNow(hitlID); q.Source == mission.SourceMCP {
		return e.answerMCP(a, hitlID, actor, text)
	}
	if done, err := e.answerRuntime(a, hitlID, actor, text); done || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if err := a.untilConnected(ctx); err != nil {
		return unavailable(fmt.Errorf("the session is not connected: %w", err))
	}
	a.ops.Lock()
	defer a.ops.Unlock()
	m := a.settled()
	q, open := m.Question(hitlID)
	switch {
	case !open:
		return fmt.Errorf("the question was answered or withdrawn: %w", ErrConflict)
	case a.latch.Load():
		return fmt.Errorf("the mission is being stopped: %w", ErrConflict)
	case m.Paused:
		return fmt.Errorf("the mission is paused, resume it first: %w", ErrConflict)
	}
	s := a.sess.Load()
	conn := s.conn.Load()
	if q.Source == "ask" {
		err = conn.AskAnswer(ctx, q.SourceID, text, "")
	} else {
		err = conn.Input(ctx, s.id, inputKey(hitlID), append([]byte(text), s.plan.GetSubmitKey()...), s.gen)
	}
	if err != nil {
		return unavailable(fmt.Errorf("the answer was not written to the session: %w", err))
	}
	s.touch()
	return a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(hitlID, "answered", actor) }, nil)
}

// answerRuntime stores the answer to a question that the runtime gets by a
// message, and sends it if the runtime is there; else it gets it when it asks
// again. false: the question is none of those.
func (e *Engine) answerRuntime(a *actor, hitlID, actor, text string) (done bool, err error) {
	a.ops.Lock()
	defer a.ops.Unlock()
	m := a.settled()
	q, open := m.Question(hitlID)
	if !open || !q.ByMessage {
		return false, nil
	}
	switch {
	case a.latch.Load():
		return true, fmt.Errorf("the mission is being stopped: %w", ErrConflict)
	case m.Paused:
		return true, fmt.Errorf("the mission is paused, resume it first: %w", ErrConflict)
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(hitlID, "answered", actor) },
		func(next *mission.Mission, _ *store.Batch) error {
			next.Remember(mission.Reply{HITLID: hitlID, Text: text})
			return nil
		})
	if err == nil {
		if s := a.sess.Load(); s != nil {
			s.rt.answer(q.SourceID, text, "")
		}
		return true, nil
	}
	if errors.Is(err, mission.ErrIllegal) {
		return true, fmt.Errorf("the question was answered or withdrawn: %w", ErrConflict)
	}
	return true, err
}

// expireQuestions closes what nobody answered in time. conn is the cell's link;
// nil: there is no session.
func (e *Engine) expireQuestions(a *actor, conn *cell.Conn) {
	now := e.now()
	for _, q := range a.state().Questions {
		if q.ExpiresAt == nil || now.Before(*q.ExpiresAt) || q.Source == mission.SourceApproval {
			continue // an approval has a timer of its own (watchExpiry)
		}
		if q.Source == "ask" && conn != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = conn.AskAnswer(ctx, q.SourceID, "", "nobody answered in time")
			cancel()
		}
		err := a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(q.HITLID, "expired", "") }, nil)
		switch {
		case err != nil && !errors.Is(err, mission.ErrIllegal):
			e.log.Warn("question could not be closed", "mission", a.id, "error", err)
		case err == nil && q.ByMessage:
			if s := a.sess.Load(); s != nil {
				s.rt.answer(q.SourceID, "", "expired")
			}
		}
	}
}

func (a *actor) questionNow(hitlID string) (mission.Question, bool) {
	m := a.settled()
	return m.Question(hitlID)
}

// AnswerOverLink is an answer that came from the orchestrator, whose own answer
// route has no authentication: approvals count only where the configuration
// says so (rulings 13), as VERB or VERB {json}. Anything else is not consumed,
// and the prompt is sent again.
func (e *Engine) AnswerOverLink(ctx context.Context, hitlID, actor, text string, approvals bool) error {
	a, err := e.asking(hitlID)
	if err != nil {
		return err
	}
	q, _ := a.questionNow(hitlID)
	if q.Source != mission.SourceApproval {
		return e.Answer(ctx, hitlID, actor, text)
	}
	refused := errors.New(`approvals over the orchestrator are shown only; orchestrator { approvals = "answer" } would let them count`)
	if approvals {
		var ap Approval
		if ap, refused = parseApproval(text); refused == nil {
			ap.DecisionID, ap.Actor = hitlID, actor
			if _, refused = e.Approve(ctx, a.id, ap); refused == nil {
				return nil
			}
		}
	}
	a.log().Warn("an answer to an approval was not taken; it is asked again", "decision", hitlID, "error", refused)
	return a.insist(func(m *mission.Mission) ([]mission.Fact, error) {
		if q, open := m.Question(hitlID); open {
			return []mission.Fact{mission.Asked{V: 1, Question: q, Again: true}}, nil
		}
		return nil, nil
	}, nil)
}

// parseApproval reads VERB or VERB {json}; the JSON is an explanation and, for
// modify_intent, the whole envelope.
func parseApproval(text string) (Approval, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	ap := Approval{Action: verb}
	if !slices.Contains(governance.Actions(), verb) {
		return ap, fmt.Errorf("%.40q is none of %v", verb, governance.Actions())
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return ap, nil
	}
	var body struct {
		Intent      *governance.Envelope `json:"modified_intent"`
		Explanation string               `json:"explanation"`
		Fingerprint string               `json:"fingerprint"`
	}
	dec := json.NewDecoder(strings.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		return ap, fmt.Errorf("after %s: %w", verb, err)
	}
	if dec.More() {
		return ap, fmt.Errorf("after %s: one JSON object, and nothing after it", verb)
	}
	ap.Intent, ap.Explanation, ap.Fingerprint = body.Intent, body.Explanation, body.Fingerprint
	return ap, nil
}

// untilConnected waits for the link of a session that is being taken up again:
// an answer that comes just after a restart must not be lost.
func (a *actor) untilConnected(ctx context.Context) error {
	for {
		if s := a.sess.Load(); s != nil {
			select {
			case <-s.conn.Load().Done():
			default:
				return nil
			}
		}
		if a.latch.Load() || a.state().Terminal() {
			return errStopped
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (e *Engine) asking(hitlID string) (*actor, error) {
	for _, a := range e.live() {
		m := a.settled() // whoever answers has seen the question already
		if _, open := m.Question(hitlID); open {
			return a, nil
		}
		if slices.Contains(m.Closed, hitlID) {
			return nil, fmt.Errorf("the question was answered or withdrawn: %w", ErrConflict)
		}
	}
	return nil, fmt.Errorf("question %q: %w", hitlID, ErrNotFound)
}
