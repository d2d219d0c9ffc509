package governance

// Outcome is what a decision says (seed 003; Control Tower reads these words).
type Outcome string

// The seven outcomes.
const (
	Allow     Outcome = "ALLOW"     // it may run
	Warn      Outcome = "WARN"      // it may run, and the finding is shown
	Challenge Outcome = "CHALLENGE" // the agent must justify it
	Replan    Outcome = "REPLAN"    // the plan must be redone
	Pause     Outcome = "PAUSE"     // a human approves, rejects or modifies
	Escalate  Outcome = "ESCALATE"  // a human must guide
	Block     Outcome = "BLOCK"     // it must not run
)

// severities orders the outcomes (rulings 16).
func severities() []Outcome {
	return []Outcome{Allow, Warn, Challenge, Replan, Pause, Escalate, Block}
}

// Severity is the place of the outcome from 0 (ALLOW) to 6 (BLOCK); an unknown
// outcome is as severe as BLOCK.
func (o Outcome) Severity() int {
	for i, s := range severities() {
		if s == o {
			return i
		}
	}
	return len(severities()) - 1
}

// Known says whether the outcome is one of the seven.
func (o Outcome) Known() bool {
	for _, s := range severities() {
		if s == o {
			return true
		}
	}
	return false
}

// Runs says whether a call with this outcome may be dispatched.
func (o Outcome) Runs() bool { return o == Allow || o == Warn }

// Waits says whether a human is asked.
func (o Outcome) Waits() bool { return o == Pause || o == Escalate }

// Worse is the more severe of two outcomes.
func Worse(a, b Outcome) Outcome {
	if b.Severity() > a.Severity() {
		return b
	}
	return a
}

// Risk is how a risk rule rates a call; empty = not evaluated.
type Risk string

// The levels.
const (
	Low    Risk = "LOW"
	Medium Risk = "MEDIUM"
	High   Risk = "HIGH"
)

// Level is 1 to 3; 0 = not evaluated.
func (r Risk) Level() int {
	switch r {
	case Low:
		return 1
	case Medium:
		return 2
	case High:
		return 3
	}
	return 0
}

// Finding is what one rule says of a call. Every finding is kept, whatever the
// decision.
type Finding struct {
	// ID names the finding over evaluations ("policy/no-force-push"); approve_once
	// waives the ids that the human was shown, and no others.
	ID         string  `json:"id"`
	Stage      string  `json:"stage"` // policy | risk | intent | budget | approve | plugin | failure
	Rule       string  `json:"rule,omitempty"`
	Outcome    Outcome `json:"outcome"`
	Reason     string  `json:"reason"`
	Constraint string  `json:"constraint,omitempty"` // intent: which one
	// Waived says that an approval covers it: it is shown, and does not count.
	Waived bool `json:"waived,omitempty"`
}
