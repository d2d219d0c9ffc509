package mission

import (
	"fmt"
	"slices"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// Renewal is a session's end after which the mission goes on in another one.
type Renewal struct {
	Next       Next
	Reason     string // why the session ended, in words
	MaxResumes int    // how many sessions may fail in a row without progress
}

// EndSession ends a session of a mission that goes on. Its calls end with it:
// nothing of them can run any more, so what was not settled is unknown, and a
// proposal that comes again is not admitted a second time.
//
// Output is no progress here, unlike over a restart of the host (rulings 34): a
// session that fails at once has said something all the same. A completed call
// is, and so is a session that waited for a human.
func (m *Mission) EndSession(generation uint64, r Renewal) ([]Fact, error) {
	if err := m.current("session ended", generation); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("session ended: the mission is being stopped: %w", ErrIllegal)
	}
	if m.Phase != PhaseLive && m.Phase != PhaseStarting {
		return nil, fmt.Errorf("session ended: %w (phase %s)", ErrIllegal, m.Phase)
	}
	resumes := m.Resumes + 1
	switch {
	case r.Next == NextDecided:
		resumes = 0
	case m.Task.Counters.Completed > m.ResumeCalls:
		resumes = 1
	}
	if resumes > r.MaxResumes {
		return m.Finish(generation, Ended{State: StateFailed, Reason: "restart_intensity_exceeded",
			Error: fmt.Sprintf("%d sessions ended without progress; the last one: %s", resumes, r.Reason)})
	}
	var facts []Fact
	for _, i := range m.Task.Running {
		s := governance.Settled{V: version, DecisionID: i.DecisionID, InvocationID: i.ID, Outcome: governance.Unknown,
			Error: "the session ended while the call ran"}
		if i.Boundary == Launch {
			s.Outcome, s.Error = governance.Failed, r.Reason
		}
		facts = append(facts, s)
	}
	for _, q := range m.Questions {
		if q.Source != SourceRuntime && q.Source != SourceApproval { // who asked has ended too
			facts = append(facts, Answered{V: version, HITLID: q.HITLID, Outcome: "withdrawn"})
		}
	}
	return append(facts, Suspended{V: version, Reason: r.Reason, Next: r.Next, Resumes: resumes}), nil
}

// Waits says whether a human is waited for before the next session: a question
// of the runtime, or a decision that can still be answered.
func (m *Mission) Waits(answerable func(governance.Decision) bool) bool {
	for _, q := range m.Questions {
		if q.Source == SourceRuntime {
			return true
		}
	}
	for _, d := range m.Task.Pending() {
		if answerable(d) {
			return true
		}
	}
	return false
}

// maxReplies is how many answers a mission keeps for a runtime that asks again.
const maxReplies = 16

// Remember keeps an answer until the mission ends.
func (m *Mission) Remember(r Reply) {
	m.Replies = append(slices.Clone(m.Replies[max(0, len(m.Replies)-maxReplies+1):]), r)
}
