package journal

import "slices"

// Kind is what an event says (rulings 25: a closed table).
type Kind string

// The kinds of events.
const (
	TaskOpened        Kind = "task_opened"
	Starting          Kind = "starting"
	Assigned          Kind = "assigned"
	Started           Kind = "started"
	Progress          Kind = "progress"
	Question          Kind = "question"
	Answered          Kind = "answered"
	Proposed          Kind = "proposed"
	Decision          Kind = "decision"
	Approval          Kind = "approval"
	Executed          Kind = "executed"
	Completed         Kind = "completed"
	Failed            Kind = "failed"
	CancelRequested   Kind = "cancel_requested"
	Paused            Kind = "paused"
	Resumed           Kind = "resumed"
	ReplanRequested   Kind = "replan_requested"
	IntentChanged     Kind = "intent_changed"
	Stop              Kind = "stop"
	StopAcknowledged  Kind = "stop_acknowledged"
	Granted           Kind = "granted"
	RevocationStarted Kind = "revocation_started"
	RevocationResult  Kind = "revocation_result"
	RulesChanged      Kind = "rules_changed"
	Suspended         Kind = "suspended"
	Reconnected       Kind = "reconnected"
	Restarted         Kind = "restarted"
	Resolved          Kind = "resolved"
	Ended             Kind = "ended"
	Gap               Kind = "gap"
	HeadPublished     Kind = "head"
	Repaired          Kind = "repaired"
)

// Kinds lists the table.
func Kinds() []Kind {
	return []Kind{TaskOpened, Starting, Assigned, Started, Progress, Question, Answered,
		Proposed, Decision, Approval, Executed, Completed, Failed,
		CancelRequested, Paused, Resumed, ReplanRequested, IntentChanged, Stop,
		StopAcknowledged, Granted, RevocationStarted, RevocationResult,
		RulesChanged, Suspended, Reconnected, Restarted, Resolved, Ended, Gap,
		HeadPublished, Repaired}
}

// Known says whether the kind is in the table.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// SignAtOnce says whether the head that ends in such an event is signed at
// once and not only with the next second's heads (governance, head checkpoint
// protocol: every stop, approval and dispatch).
func (k Kind) SignAtOnce() bool {
	switch k {
	case Approval, Executed, Stop, StopAcknowledged, RevocationResult, Suspended, Ended, Repaired:
		return true
	}
	return false
}

// Reserved says whether the event may use the disk space that is kept for the
// time when there is none left (rulings 41: stop, revocation and ended events).
func (k Kind) Reserved() bool {
	switch k {
	case Stop, StopAcknowledged, RevocationStarted, RevocationResult, Suspended, Ended:
		return true
	}
	return false
}
