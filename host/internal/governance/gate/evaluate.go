package gate

import (
	"errors"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// evaluation is one call of Evaluate.
type evaluation struct {
	r        *Rules
	in       Input
	limits   Amount
	findings []governance.Finding
	known    map[string]bool // ids of the findings
	read     reads
	proposed scope // as proposed
	final    scope // as it would run
	risk     governance.Risk
}

// Evaluate judges a call. It never panics and has no error: what goes wrong is
// a finding, as severe as on_failure says.
func (r *Rules) Evaluate(in Input) Verdict {
	e := &evaluation{r: r, in: in, limits: in.Limits, known: map[string]bool{}}
	if e.limits == (Amount{}) {
		e.limits = r.budget()
	}
	args, err := parseArgs(in.Args)
	if err != nil {
		e.add(governance.Finding{ID: "failure/args", Stage: StageFailure, Outcome: governance.Block, Reason: "the call is refused: " + err.Error()})
		e.stage(StageBudget, e.budget)
		return e.verdict(false)
	}
	e.stage(StagePolicy, func() { e.read = r.reads(in.Tool) })
	e.proposed = newScope(in, args, &e.read)
	e.final = e.proposed
	e.stage(StagePolicy, e.policy)
	e.stage(StageRisk, e.rate)
	e.stage(StageIntent, e.intent)
	e.stage(StageBudget, e.budget)
	return e.verdict(true)
}

// reads are what the conditions for a tool read.
func (r *Rules) reads(tool string) reads {
	var out reads
	for _, i := range r.byTool.rules(tool) {
		out.add(r.policy[i].When)
	}
	for _, i := range r.risk.rules(tool) {
		out.add(r.g.Risk.Rules[i].When)
	}
	return out
}

// stage runs a stage; a panic in it is a finding, and the others run all the
// same.
func (e *evaluation) stage(name string, run func()) {
	defer func() {
		if recover() != nil {
			e.fail(name, "", errors.New("the stage broke down"))
		}
	}()
	run()
}

// add keeps a finding; the second one of an id only says the same again.
func (e *evaluation) add(f governance.Finding) {
	if e.known[f.ID] {
		return
	}
	e.known[f.ID] = true
	e.findings = append(e.findings, f)
}

// fail is the finding about something that could not be evaluated.
func (e *evaluation) fail(stage, rule string, err error) {
	id := "failure/" + stage
	what := "the stage " + stage
	if rule != "" {
		id += "/" + rule
		what = stage + " rule " + rule
	}
	e.add(governance.Finding{ID: id, Stage: StageFailure, Rule: rule, Outcome: onFailure(e.r.g.OnFailure),
		Reason: what + " cannot be evaluated (" + err.Error() + "); on_failure = " + e.r.g.OnFailure})
}

func onFailure(policy string) governance.Outcome {
	if policy == "fail_open" {
		return governance.Allow
	}
	return governance.Block
}

// policy is steps 2 to 5 of an evaluation.
func (e *evaluation) policy() {
	rules := e.r.byTool.rules(e.in.Tool)
	rewriting, matched := []*policyRule{}, false
	for _, i := range rules {
		p := &e.r.policy[i]
		if !e.match(p, &e.proposed) {
			continue
		}
		matched = true
		if p.rewrite != nil {
			rewriting = append(rewriting, p)
		}
	}
	if len(rewriting) > 0 {
		args, err := rewrite(e.proposed.args, rewriting)
		switch {
		case err != nil:
			// What would run does not exist.
			e.add(governance.Finding{ID: "failure/rewrite", Stage: StageFailure, Outcome: governance.Block, Reason: "the arguments cannot be rewritten: " + err.Error()})
		case string(args.raw) != string(e.proposed.args.raw):
			e.final = newScope(e.in, args, &e.read)
			for _, i := range rules {
				e.match(&e.r.policy[i], &e.final)
			}
		}
	}
	if !matched && e.r.g.PolicyDefault == "deny" {
		e.add(governance.Finding{ID: "policy/default", Stage: StagePolicy, Outcome: governance.Block, Reason: "no policy rule is for this call, and the default is deny"})
	}
}

func rewrite(args value, rules []*policyRule) (value, error) {
	for _, p := range rules {
		next, err := parseArgs(args.merge(*p.rewrite))
		if err != nil {
			return value{}, err
		}
		args = next
	}
	return args, nil
}

// match says whether a rule matches, and adds its finding then. A rule whose
// condition has an error but holds all the same counts as a match, unless it
// allows.
func (e *evaluation) match(p *policyRule, s *scope) bool {
	holds, err := s.holds(p.When)
	if err != nil {
		e.fail(p.stage, p.Name, err)
		holds = holds && p.outcome != governance.Allow
	}
	if holds {
		e.add(governance.Finding{ID: p.stage + "/" + p.Name, Stage: p.stage, Rule: p.Name, Outcome: p.outcome,
			Reason: reason(p.Reason, p.stage+" rule "+p.Name+" says "+p.Effect)})
	}
	return holds
}

func reason(given, otherwise string) string {
	if given != "" {
		return given
	}
	return otherwise
}

// rate is the risk of the call by the first rule that matches, else LOW. A rule
// that cannot be evaluated is a finding, and the ones behind it are asked.
func (e *evaluation) rate() {
	if e.r.g.Risk == nil {
		return
	}
	e.risk = governance.Low
	for _, i := range e.r.risk.rules(e.in.Tool) {
		rule := e.r.g.Risk.Rules[i]
		holds, err := e.final.holds(rule.When)
		if err != nil {
			e.fail(StageRisk, rule.Name, err)
		}
		if !holds {
			continue
		}
		e.risk = governance.Risk(rule.Risk)
		e.rated("risk/"+rule.Name, &rule)
		return
	}
	e.rated("risk/default", nil)
}

func (e *evaluation) rated(id string, rule *config.RiskRule) {
	f := governance.Finding{ID: id, Stage: StageRisk, Outcome: governance.Allow, Reason: "the risk is " + string(e.risk)}
	at := governance.Risk(e.r.g.Risk.BlockAt)
	if e.risk.Level() >= at.Level() {
		f.Outcome, f.Reason = governance.Block, f.Reason+", and calls are blocked at "+string(at)
	}
	switch {
	case rule != nil && rule.Reason != "":
		f.Rule, f.Reason = rule.Name, f.Reason+": "+rule.Reason
	case rule != nil:
		f.Rule, f.Reason = rule.Name, f.Reason+" (risk rule "+rule.Name+")"
	case f.Outcome == governance.Allow:
		return // nothing was found
	}
	e.add(f)
}

// verdict puts the findings together. good says that the arguments are.
func (e *evaluation) verdict(good bool) Verdict {
	v := Verdict{Findings: e.findings, waived: e.in.Waived, risk: e.risk, NotEvaluated: notEvaluated(e.r.stages(e.in.Intent != nil, e.limits))}
	if good {
		v.Args = e.final.args.raw
		v.Rewritten = string(e.final.args.raw) != string(e.proposed.args.raw)
	} else {
		v.NotEvaluated = []string{StagePolicy, StageRisk, StageIntent, StageApprove, StagePlugin}
	}
	compose(&v)
	return v
}

// compose fills in what follows from the findings.
func compose(v *Verdict) {
	v.Outcome, v.Risk = governance.Allow, v.risk
	counting := []governance.Finding{}
	for i := range v.Findings {
		f := &v.Findings[i]
		// A human is never asked about a BLOCK, so no approval covers one.
		f.Waived = f.Outcome != governance.Block && slices.Contains(v.waived, f.ID)
		if f.Stage == StageFailure {
			v.Risk = ""
		}
		if f.Waived {
			continue
		}
		v.Outcome = governance.Worse(v.Outcome, f.Outcome)
		if f.Outcome != governance.Allow || f.Stage == StageFailure {
			counting = append(counting, *f)
		}
	}
	slices.SortStableFunc(counting, func(a, b governance.Finding) int { return b.Outcome.Severity() - a.Outcome.Severity() })
	reasons := []string{}
	for _, f := range counting {
		if !slices.Contains(reasons, f.Reason) {
			reasons = append(reasons, f.Reason)
		}
	}
	if v.Reason = strings.Join(reasons, "; "); v.Reason == "" {
		v.Reason = "nothing speaks against it"
	}
	v.EscalationRequired = v.Outcome.Waits()
}
