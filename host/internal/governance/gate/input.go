package gate

import (
	"encoding/json"
	"time"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// Input is one proposed call and what is known around it. Evaluate changes none
// of it.
type Input struct {
	Tool       string
	Provenance string          // where the tool comes from; no rule looks at it
	Args       json.RawMessage // a JSON object; Canonical says what is good
	Mission    Mission
	Intent     *governance.Envelope // nil: none
	History    []HistoryEntry       // earlier calls, oldest first; bounded by the caller
	Spent      Amount
	Limits     Amount   // the agent's; zero in both: those of the rule set
	Waived     []string // ids of findings that an approval covers
	Now        time.Time
}

// Mission is what conditions may know of the mission.
type Mission struct {
	ID        string
	Agent     string // the agent block's name; also the variable agent
	Runtime   string
	Objective string
}

// HistoryEntry is an earlier call.
type HistoryEntry struct {
	Tool   string
	Status string // of its decision, or of how it ended
}

// Amount is of a budget; as a limit 0 is none.
type Amount struct {
	CostMicroUSD int64
	Tokens       int64
}

// Verdict is what the gate says of a call.
type Verdict struct {
	Outcome governance.Outcome
	// Risk is empty (null on the wire) when the stage is not on and when
	// something could not be evaluated.
	Risk   governance.Risk
	Reason string // of all findings that count, the most severe first
	// Findings are all of them, in the order of the stages.
	Findings []governance.Finding
	// Args are the arguments that would run: normalised and rewritten. Nil if
	// they are no good.
	Args      json.RawMessage
	Rewritten bool
	// EscalationRequired says that a human has to answer: PAUSE and ESCALATE.
	EscalationRequired bool
	NotEvaluated       []string // stages that were not on

	waived []string
	risk   governance.Risk
}
