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
	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// answerWait bounds the writing of an answer.
const answerWait = 15 * time.Second

// questionSpace makes question ids that are the same after a replay.
var questionSpace = uuid.MustParse("6f0d3b52-4d0e-5b0e-9a3c-6f2f7c1f9a11")

// questionID is the host's id of a question: unique over all missions, and the
// same for the same question.
func (s *liveSession) questionID(source, id string) string {
	name := strings.Join([]string{s.a.id, fmt.Sprint(s.gen), source, id}, "\x00")
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

func (s *liveSession) question(q *pluginv1.Question) {
	s.put(mission.Question{Prompt: q.GetPrompt(), Context: q.GetContext(), Options: q.GetOptions(), Source: "runtime", SourceID: q.GetHitlId()})
}

// put journals a question. A terminal has one reader: a new question from the
// runtime closes the older one.
func (s *liveSession) put(q mission.Question) {
	q.HITLID = s.questionID(q.Source, q.SourceID)
	q.MissionID, q.SessionID, q.AskedAt = s.a.id, s.id, s.eng.now().UTC()
	if q.Prompt == "" {
		q.Prompt = "(no prompt)"
	}
	if s.spec.QuestionTimeout > 0 {
		at := q.AskedAt.Add(s.spec.QuestionTimeout)
		q.ExpiresAt = &at
	}
	for _, old := range s.a.state().Questions {
		if q.Source == "runtime" && old.Source == "runtime" && old.HITLID != q.HITLID {
			s.closeQuestion(old.HITLID, "withdrawn")
		}
	}
	if err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Ask(s.gen, q) }, nil); err != nil {
		s.eng.log.Debug("question was not taken", "mission", s.a.id, "error", err)
	}
}

func (s *liveSession) closeQuestion(hitlID, outcome string) {
	err := s.a.insist(func(m *mission.Mission) ([]mission.Fact, error) { return m.Close(hitlID, outcome, "") }, nil)
	if err != nil && !errors.Is(err, mission.ErrIllegal) {
		s.eng.log.Warn("question could not be closed", "mission", s.a.id, "error", err)
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
	e.log.Warn("an answer to an approval was not taken; it is asked again", "task", a.id, "decision", hitlID, "error", refused)
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
