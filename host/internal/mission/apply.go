package mission

import (
	"slices"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// maxClosed is how many closed questions a mission remembers.
const maxClosed = 63

// Apply changes the mission by one fact that happened at the given time. It
// never fails: whether a fact may happen was decided before.
func (m *Mission) Apply(f Fact, at time.Time) {
	m.UpdatedAt = at
	switch f := f.(type) {
	case Opened:
		m.V, m.JournalUUID, m.Origin, m.Agent = 1, f.JournalUUID, f.Origin, f.Agent
		m.Isolation, m.Runtime, m.RuntimeName = f.Isolation, f.Runtime, f.RuntimeName
		m.Objective, m.Completion, m.SessionHint = f.Objective, f.Completion, f.SessionHint
		m.LongRunning, m.Metadata, m.PayloadDigest, m.Spec = f.LongRunning, f.Metadata, f.PayloadDigest, f.Spec
		m.CreatedAt, m.Phase, m.Epoch = at, PhaseQueued, 1
		m.Task.Intent, m.Task.Plan, m.Task.Rules = f.Intent, f.Plan, f.Rules
		if m.Harness = f.Harness; m.Harness {
			m.Phase, m.StartedAt = PhaseLive, &at
		}
	case Assigned:
		m.EstimatedStart = f.EstimatedStart
		m.Phase, m.Suspended = PhaseQueued, false
	case Starting:
		m.Phase, m.Generation = PhaseStarting, f.Generation
		m.unpark(at)
		m.CellID, m.Incarnation, m.SessionID, m.BootID = f.CellID, f.Incarnation, f.SessionID, f.BootID
	case Started:
		m.Phase, m.SessionID = PhaseLive, f.SessionID
		if m.StartedAt == nil {
			m.StartedAt = &at
		}
	case Progressed:
		if f.used() {
			m.Tokens, m.CostMicro = f.Tokens, f.CostMicro
			break
		}
		p := f.Progress
		if f.Goal {
			m.Resumes = 0 // the mission gets on
		} else if p.PctDone == nil && m.Progress != nil {
			p.PctDone = m.Progress.PctDone // only the goal's checkpoints say that (rulings 7)
		}
		m.Progress = &p
	case Asked:
		if _, open := m.Question(f.HITLID); !open {
			m.Questions = append(m.Questions[:len(m.Questions):len(m.Questions)], f.Question)
		}
	case Answered:
		var rest []Question
		for _, q := range m.Questions {
			if q.HITLID != f.HITLID {
				rest = append(rest, q)
			}
		}
		m.Questions = rest
		m.Closed = append(m.Closed[max(0, len(m.Closed)-maxClosed):len(m.Closed):len(m.Closed)], f.HITLID)
	case Paused:
		m.Paused, m.PausedReason, m.Epoch = true, f.Reason, f.Epoch
		m.Reason = f.Reason
	case ReplanAsked:
		m.Paused, m.PausedReason, m.Epoch = true, "replan", f.Epoch
		m.Reason = f.Reason
	case Resumed:
		if f.From == "paused" {
			m.Paused, m.PausedReason = false, ""
		}
		m.Suspended, m.Reason = false, ""
	case Stopped:
		s := f.Stop
		m.Stop, m.Epoch = &s, f.Epoch
		m.Reason = s.Reason
		m.Task.Void()
		m.dropApprovals()
		if s.Restored {
			m.Task.LeaveOpen()
		}
	case StopAcknowledged:
		if m.Stop != nil {
			s := *m.Stop
			s.Done = true
			m.Stop = &s
		}
	case Suspended:
		if f.Next != "" {
			m.Phase, m.Next, m.BetweenSince, m.RenewReason = PhaseBetween, f.Next, &at, f.Reason
			m.Resumes, m.ResumeOffset, m.ResumeCalls = f.Resumes, 0, m.Task.Counters.Completed
			break
		}
		m.Suspended, m.CheckpointID, m.Reason = true, f.CheckpointID, f.Reason
	case Reconnected:
		m.Suspended, m.Resumes, m.ResumeOffset = false, f.Resumes, f.Offset
		m.ResumeCalls = m.Task.Counters.Completed
		m.CheckpointID = f.CheckpointID
		if m.Harness {
			m.Task.LeaveOpen()
		} else {
			m.Reason = ""
		}
		if f.Epoch > 0 {
			m.Epoch = f.Epoch
		}
		m.dropApprovals()
	case Restarted:
		m.Epoch, m.Stop, m.Reason = f.Epoch, nil, ""
	case Ended:
		m.Phase, m.State, m.Reason = PhaseEnded, f.State, f.Reason
		m.Error, m.ExitCode, m.Summary = f.Error, f.ExitCode, f.Summary
		m.AbortedBy, m.Artifacts = f.AbortedBy, f.Artifacts
		m.Suspended, m.Paused, m.Questions, m.EndedAt = false, false, nil, &at
		m.Replies, m.Lost = nil, nil
		m.unpark(at)
		if f.Tokens > 0 {
			m.Tokens = f.Tokens
		}
		m.Task.Void()
		m.Task.LeaveOpen()
	case governance.IntentChanged:
		m.Epoch = f.Epoch
		m.Task.Apply(f, at)
	case governance.RulesChanged:
		m.Epoch = f.Epoch
		m.Task.Apply(f, at)
	case governance.Settled:
		m.lose(f)
		m.Task.Apply(f, at)
	default:
		m.Task.Apply(f, at)
	}
	m.settle()
}

// unpark ends a wait between two sessions.
func (m *Mission) unpark(at time.Time) {
	if m.BetweenSince != nil {
		m.Parked += at.Sub(*m.BetweenSince)
	}
	m.Next, m.BetweenSince = "", nil
}

// maxLost bounds what an agent is told of calls that nobody knows the end of.
const maxLost = 32

// lose notes a call whose end nobody knows, and forgets those of earlier
// sessions once the agent has completed another one.
func (m *Mission) lose(s governance.Settled) {
	i, ok := m.Task.Invocation(s.InvocationID)
	if !ok || i.Boundary == Launch {
		return
	}
	switch s.Outcome {
	case governance.Unknown:
		m.Lost = append(slices.Clone(m.Lost[max(0, len(m.Lost)-maxLost+1):]),
			LostCall{ProposalID: i.ProposalID, InvocationID: i.ID, Tool: i.Tool, Generation: m.Generation})
	case governance.Succeeded:
		m.Lost = slices.DeleteFunc(slices.Clone(m.Lost), func(c LostCall) bool { return c.Generation < m.Generation })
	}
}

// dropApprovals closes the questions that stand for approvals: they are void,
// and asked anew under the new epoch.
func (m *Mission) dropApprovals() {
	m.Questions = slices.DeleteFunc(slices.Clone(m.Questions), func(q Question) bool { return q.Source == SourceApproval })
	if len(m.Questions) == 0 {
		m.Questions = nil
	}
}
