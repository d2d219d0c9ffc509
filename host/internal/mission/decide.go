package mission

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const version = 1

// RestartRequired is why a mission is paused that came back latched.
const RestartRequired = "restart_required"

// Open is the first command of a mission.
func Open(o Opened, estimatedStart time.Time) []Fact {
	o.V = version
	return []Fact{o, Assigned{V: version, EstimatedStart: estimatedStart}}
}

// Start asks for a cell and a session in it; plugins are the programs that will
// have to do with it.
func (m *Mission) Start(cellID string, incarnation uint64, sessionID, bootID string, plugins ...Build) ([]Fact, error) {
	if err := m.alive("start"); err != nil {
		return nil, err
	}
	if m.Phase != PhaseQueued && m.Phase != PhaseBetween || m.Paused || m.Latched() {
		return nil, fmt.Errorf("start: %w (phase %s)", ErrIllegal, m.Phase)
	}
	return []Fact{Starting{V: version, Generation: m.Generation + 1, CellID: cellID, Incarnation: incarnation, SessionID: sessionID, BootID: bootID, Plugins: plugins}}, nil
}

// SessionStarted reports that the session of a generation runs. A pause that
// came meanwhile is said again, since started turned the wire to running.
func (m *Mission) SessionStarted(generation uint64) ([]Fact, error) {
	if err := m.current("session started", generation); err != nil {
		return nil, err
	}
	if m.Phase != PhaseStarting || m.Latched() {
		return nil, fmt.Errorf("session started: %w (phase %s)", ErrIllegal, m.Phase)
	}
	facts := []Fact{Started{V: version, Generation: generation, AgentRuntime: m.RuntimeName, SessionID: m.SessionID}}
	return append(facts, m.restate(m.Epoch)...), nil
}

// restate says again what a running-event on the wire has covered up. Approvals
// of an older epoch are void: they are judged and asked anew.
func (m *Mission) restate(epoch uint64) []Fact {
	var facts []Fact
	for _, q := range m.Questions {
		if q.Source != SourceApproval || epoch == m.Epoch {
			facts = append(facts, Asked{V: version, Question: q, Again: true})
		}
	}
	if m.Paused {
		facts = append(facts, Paused{V: version, Epoch: epoch, Reason: m.PausedReason, Again: true})
	}
	return facts
}

// Report takes the runtime's progress.
func (m *Mission) Report(generation uint64, p Progress) ([]Fact, error) {
	if err := m.current("progress", generation); err != nil {
		return nil, err
	}
	return []Fact{Progressed{V: version, Progress: p}}, nil
}

// Ask puts a question. The same id again is nothing new.
func (m *Mission) Ask(generation uint64, q Question) ([]Fact, error) {
	if err := m.current("question", generation); err != nil {
		return nil, err
	}
	if _, open := m.Question(q.HITLID); open || m.Latched() || slices.Contains(m.Closed, q.HITLID) {
		return nil, nil
	}
	facts := []Fact{Asked{V: version, Question: q}}
	if m.Paused {
		facts = append(facts, Paused{V: version, Epoch: m.Epoch, Reason: m.PausedReason, Again: true})
	}
	return facts, nil
}

// Close closes a question: answered, expired or withdrawn.
func (m *Mission) Close(hitlID, outcome, actor string) ([]Fact, error) {
	if err := m.alive("answer"); err != nil {
		return nil, err
	}
	if _, open := m.Question(hitlID); !open {
		return nil, fmt.Errorf("question %q is not open: %w", hitlID, ErrIllegal)
	}
	facts := []Fact{Answered{V: version, HITLID: hitlID, Outcome: outcome, Actor: actor}}
	for _, q := range m.Questions {
		if q.HITLID != hitlID {
			facts = append(facts, Asked{V: version, Question: q, Again: true})
		}
	}
	return facts, nil
}

// Pause holds the mission; everything decided before is void.
func (m *Mission) Pause(actor, reason string) ([]Fact, error) {
	if err := m.alive("pause"); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("pause: the mission is being stopped: %w", ErrIllegal)
	}
	if m.Paused {
		return nil, nil
	}
	return []Fact{Paused{V: version, Epoch: m.Epoch + 1, Actor: actor, Reason: reason}}, nil
}

// Resume lifts a pause, never a stop.
func (m *Mission) Resume(actor string) ([]Fact, error) {
	if err := m.alive("resume"); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("resume: the mission is being stopped: %w", ErrIllegal)
	}
	if !m.Paused {
		return nil, nil
	}
	if m.PausedReason == RestartRequired {
		return nil, fmt.Errorf("resume: the mission waits for an explicit restart: %w", ErrIllegal)
	}
	return m.goOn(Resumed{V: version, From: "paused", Actor: actor}), nil
}

func (m *Mission) goOn(facts ...Fact) []Fact {
	for _, q := range m.Questions {
		facts = append(facts, Asked{V: version, Question: q, Again: true})
	}
	return facts
}

// Restart lets a mission go on that came back latched (restore = "latched").
func (m *Mission) Restart(actor string) ([]Fact, error) {
	if err := m.alive("restart"); err != nil {
		return nil, err
	}
	if m.Harness {
		return m.restartHarness(actor)
	}
	if m.Latched() || m.PausedReason != RestartRequired {
		return nil, fmt.Errorf("restart: only a mission that a restart of the host left latched can be restarted: %w", ErrIllegal)
	}
	if err := m.Task.MayRestart(); err != nil && len(m.Task.Running) == 0 {
		return nil, err
	}
	return m.goOn(Restarted{V: version, Epoch: m.Epoch + 1, Actor: actor}, Resumed{V: version, From: "paused", Actor: actor}), nil
}

// StopNow sets the stop latch. It is never refused while the mission lives; a
// second stop changes nothing, but for a task that nobody has stopped: one that
// came back stopped from a restart has the stop of whoever stops it then.
func (m *Mission) StopNow(s Stop) ([]Fact, error) {
	if err := m.alive("stop"); err != nil {
		return nil, err
	}
	if m.Latched() && !m.CameBackStopped() {
		return nil, nil
	}
	return []Fact{Stopped{V: version, Epoch: m.Epoch + 1, Stop: s}}, nil
}

// StopDone ends a stop ladder that was proven.
func (m *Mission) StopDone(receipt json.RawMessage) ([]Fact, error) {
	if err := m.alive("stop done"); err != nil {
		return nil, err
	}
	if !m.Latched() {
		return nil, fmt.Errorf("stop done: no stop: %w", ErrIllegal)
	}
	if m.Harness && !m.Stop.Final {
		return []Fact{StopAcknowledged{V: version, StopID: m.Stop.ID, Receipt: receipt}}, nil
	}
	end := Ended{V: version, State: StateAborted, Reason: m.Stop.Reason, AbortedBy: m.Stop.By, Tokens: m.Tokens}
	if m.Stop.Fail != "" {
		end = Ended{V: version, State: StateFailed, Reason: m.Stop.Fail, Error: m.Stop.Reason, Tokens: m.Tokens}
	}
	open := m.settleCalls(end)
	return append(open, StopAcknowledged{V: version, StopID: m.Stop.ID, Receipt: receipt}, end), nil
}

// Finish ends a mission that was not stopped. A result that comes after the
// stop latch, or from an old generation, is not the mission's end any more. A
// session that never reported progress does so now, since each mission must
// (rulings 7).
func (m *Mission) Finish(generation uint64, e Ended) ([]Fact, error) {
	if err := m.current("end", generation); err != nil {
		return nil, err
	}
	if m.Latched() {
		return nil, fmt.Errorf("end: the mission is being stopped: %w", ErrIllegal)
	}
	e.V, e.Tokens = version, m.Tokens
	open := m.settleCalls(e)
	if m.Progress == nil && m.Phase == PhaseLive {
		open = append(open, Progressed{V: version, Progress: Progress{Phase: "execution"}})
	}
	return append(open, e), nil
}

// Suspend says that the host goes away on purpose.
func (m *Mission) Suspend(checkpointID, reason string) ([]Fact, error) {
	if err := m.alive("suspend"); err != nil {
		return nil, err
	}
	if m.Suspended {
		return nil, nil
	}
	return []Fact{Suspended{V: version, CheckpointID: checkpointID, Reason: reason}}, nil
}

// Reconnect says that the host is back and, for a session that lives, that it
// goes on (rulings 5). offset is the output known now; maxResumes is how many
// unplanned restarts without progress are borne. latched leaves the mission
// paused until somebody restarts it.
func (m *Mission) Reconnect(checkpointID string, offset uint64, maxResumes int, latched bool, estimatedStart time.Time) ([]Fact, error) {
	if err := m.alive("reconnect"); err != nil {
		return nil, err
	}
	if m.Phase == PhaseQueued {
		return append([]Fact{Assigned{V: version, EstimatedStart: estimatedStart, Again: true}}, m.restate(m.Epoch)...), nil
	}
	planned, resumes := m.Suspended, m.Resumes
	if !planned && m.Phase != PhaseBetween { // there nothing ran that could have come to grief
		switch progress := offset > m.ResumeOffset || m.Task.Counters.Completed > m.ResumeCalls; {
		case progress:
			resumes = 1
		case len(m.Questions) == 0: // who waits for a human is not expected to get on
			resumes++
		}
	}
	if planned {
		checkpointID = m.CheckpointID
	}
	// Verdicts of the time before are void, and what waits is judged again (E4).
	facts := []Fact{Reconnected{V: version, CheckpointID: checkpointID, Planned: planned, Resumes: resumes, Offset: offset, Epoch: m.Epoch + 1}}
	if resumes > maxResumes {
		return append(facts, Ended{V: version, State: StateFailed, Reason: "restart_intensity_exceeded",
			Error: fmt.Sprintf("resumed %d times without progress", maxResumes), Tokens: m.Tokens}), nil
	}
	if latched && !m.Latched() {
		return append(facts, Paused{V: version, Epoch: m.Epoch + 2, Actor: "airlock", Reason: RestartRequired}), nil
	}
	if (m.Phase == PhaseLive || m.Phase == PhaseBetween) && !m.Latched() {
		facts = append(facts, Resumed{V: version, From: "suspended"})
	}
	return append(facts, m.restate(m.Epoch+1)...), nil
}

// Requeue puts a mission whose start certainly never reached a cell back into
// the queue.
func (m *Mission) Requeue(generation uint64, estimatedStart time.Time) ([]Fact, error) {
	if err := m.current("requeue", generation); err != nil {
		return nil, err
	}
	if m.Phase != PhaseStarting {
		return nil, fmt.Errorf("requeue: %w (phase %s)", ErrIllegal, m.Phase)
	}
	if m.StartedAt != nil { // it was to be a further session
		return []Fact{Suspended{V: version, Reason: "the start of its next session did not come through", Next: NextNow, Resumes: m.Resumes}}, nil
	}
	return append([]Fact{Assigned{V: version, EstimatedStart: estimatedStart, Again: true}}, m.restate(m.Epoch)...), nil
}

func (m *Mission) alive(what string) error {
	if m.Terminal() {
		return fmt.Errorf("%s: the mission is %s: %w", what, m.State, ErrIllegal)
	}
	return nil
}

func (m *Mission) current(what string, generation uint64) error {
	if err := m.alive(what); err != nil {
		return err
	}
	if generation != m.Generation {
		return fmt.Errorf("%s of generation %d, now %d: %w", what, generation, m.Generation, ErrStale)
	}
	return nil
}
