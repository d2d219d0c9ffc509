package gate

import (
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// intent holds arguments against the constraints of the envelope, and says when
// its time is over: a WARN, once, and the bindings count all the same.
func (e *evaluation) intent() {
	if in := e.in.Intent; in != nil && in.Expired(e.in.Now) {
		e.add(governance.Finding{ID: "intent/expired", Stage: StageIntent, Outcome: governance.Warn, Reason: "the intent has expired"})
	}
	for _, i := range e.r.binding.rules(e.in.Tool) {
		e.bind(e.r.g.Bindings[i])
	}
}

func (e *evaluation) bind(b config.Binding) {
	arg, hasArg := e.final.args.find(b.Argument.Tokens())
	var constraint value
	hasConstraint := false
	if e.in.Intent != nil {
		if raw, ok := e.in.Intent.Constraints[b.Constraint]; ok {
			v, err := parseJSON(raw)
			if err != nil {
				e.fail(StageIntent, b.Name, fmt.Errorf("constraint %s: %w", b.Constraint, err))
				return
			}
			constraint, hasConstraint = v, true
		}
	}
	switch {
	case !hasArg:
		e.missing(b, "argument "+b.Argument.String())
		return
	case !hasConstraint:
		e.missing(b, "constraint "+b.Constraint)
		return
	}
	is, ok := holds(arg, b.Op, constraint)
	switch {
	case !ok:
		e.fail(StageIntent, b.Name, errors.New("argument "+b.Argument.String()+" is "+arg.kind.String()+", constraint "+b.Constraint+" is "+constraint.kind.String()+
			": they cannot be compared by "+b.Op))
	case !is:
		e.add(governance.Finding{ID: "intent/" + b.Name, Stage: StageIntent, Rule: b.Name, Outcome: governance.Outcome(b.Severity), Constraint: b.Constraint,
			Reason: reason(b.Reason, "argument "+b.Argument.String()+" must be "+b.Op+" constraint "+b.Constraint+", and is not")})
	}
}

// missing follows on_missing; its id is not that of a violation, so that an
// approval of the one does not cover the other.
func (e *evaluation) missing(b config.Binding, what string) {
	f := governance.Finding{ID: "intent/" + b.Name + "/missing", Stage: StageIntent, Rule: b.Name, Constraint: b.Constraint,
		Outcome: governance.Block, Reason: what + " is missing (binding " + b.Name + ")"}
	switch b.OnMissing {
	case "allow":
		f.Outcome = governance.Allow
	case "warn":
		f.Outcome = governance.Warn
	}
	e.add(f)
}

// budget pauses when what was spent has reached a limit (governance 2E, G7:
// reservations are made where calls are dispatched and where models are asked).
func (e *evaluation) budget() {
	if l := e.limits.CostMicroUSD; l > 0 && e.in.Spent.CostMicroUSD >= l {
		e.add(governance.Finding{ID: "budget/cost", Stage: StageBudget, Outcome: governance.Pause,
			Reason: "the budget is spent: " + usd(e.in.Spent.CostMicroUSD) + " of " + usd(l)})
	}
	if l := e.limits.Tokens; l > 0 && e.in.Spent.Tokens >= l {
		e.add(governance.Finding{ID: "budget/tokens", Stage: StageBudget, Outcome: governance.Pause,
			Reason: fmt.Sprintf("the budget is spent: %d of %d tokens", e.in.Spent.Tokens, l)})
	}
}

func usd(micro int64) string { return fmt.Sprintf("USD %d.%06d", micro/1e6, micro%1e6) }
