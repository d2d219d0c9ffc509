package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// Tighten adds the findings of policy plugins to a verdict; Rule is the
// plugin's name. The outcome can
// only become more severe; an outcome that is none of the seven goes to
// on_failure (governance G9). The verdict that is passed in is not changed.
func (r *Rules) Tighten(v Verdict, findings []governance.Finding) Verdict {
	v.Findings = slices.Clone(v.Findings)
	for _, f := range findings {
		f.Stage, f.Waived = StagePlugin, false
		// A plugin's finding never has the id of another one: an approval of
		// that would cover it.
		if own := "plugin/" + f.Rule; f.ID == "" {
			f.ID = own
		} else if f.ID != own && !strings.HasPrefix(f.ID, own+"/") {
			f.ID = own + "/" + f.ID
		}
		if !f.Outcome.Known() {
			f = r.failed(f.Rule, r.g.OnFailure, fmt.Sprintf("the outcome %.40q is unknown", f.Outcome))
		}
		v.Findings = append(v.Findings, f)
	}
	compose(&v)
	return v
}

// PluginFailed adds the finding about a policy plugin that did not answer, as
// severe as its own on_failure says. The text of err must hold no value of an
// argument.
func (r *Rules) PluginFailed(v Verdict, p config.PolicyPlugin, err error) Verdict {
	v.Findings = append(slices.Clone(v.Findings), r.failed(p.Name, p.OnFailure, err.Error()))
	compose(&v)
	return v
}

func (r *Rules) failed(plugin, policy, why string) governance.Finding {
	return governance.Finding{ID: "failure/plugin/" + plugin, Stage: StageFailure, Rule: plugin, Outcome: onFailure(policy),
		Reason: "policy plugin " + plugin + " failed (" + why + "); on_failure = " + policy}
}
