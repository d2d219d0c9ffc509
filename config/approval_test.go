package config

import (
	"strings"
	"testing"
	"time"
)

// An approval_hold that is not written follows approval_timeout; where both are
// written and contradict one another there is one error, at what was written.
func TestApprovalHoldFollowsTimeout(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for _, tc := range []struct {
		name, host, agent    string
		hostHold, agentHold  time.Duration
		hostLimit, agentTime time.Duration
	}{
		{"nothing", "", "", 10 * m, 10 * m, 15 * m, 15 * m},
		{"short timeout", `approval_timeout = "5m"`, "", 5 * m, 5 * m, 5 * m, 5 * m},
		{"long timeout", `approval_timeout = "1h"`, "", 10 * m, 10 * m, 60 * m, 60 * m},
		{"both", "approval_timeout = \"5m\"\n approval_hold = \"1m\"", "", 1 * m, 1 * m, 5 * m, 5 * m},
		{"agent's timeout", "", `approval_timeout = "2m"`, 10 * m, 2 * m, 15 * m, 2 * m},
		{"agent's timeout and host's hold", `approval_hold = "3m"`, `approval_timeout = "2m"`, 3 * m, 2 * m, 15 * m, 2 * m},
		{"agent's longer timeout", `approval_timeout = "5m"`, `approval_timeout = "30m"`, 5 * m, 10 * m, 5 * m, 30 * m},
		{"agent's hold", "", `approval_hold = "15m"`, 10 * m, 15 * m, 15 * m, 15 * m},
	} {
		cfg := mustParse(t, approvalText(tc.host, tc.agent))
		g, a := cfg.Governance, cfg.Agents[0]
		if g.ApprovalHold != tc.hostHold || a.ApprovalHold != tc.agentHold || g.ApprovalTimeout != tc.hostLimit || a.ApprovalTimeout != tc.agentTime {
			t.Errorf("%s: the host holds %s of %s, the agent %s of %s", tc.name, g.ApprovalHold, g.ApprovalTimeout, a.ApprovalHold, a.ApprovalTimeout)
		}
	}
}

func TestApprovalHoldOneErrorAtWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, host, agent, line, says string }{
		{"host", "approval_timeout = \"5m\"\n approval_hold = \"6m\"", "", `approval_hold = "6m"`, "longer than approval_timeout (5m0s)"},
		{"host's hold alone", `approval_hold = "20m"`, "", `approval_hold = "20m"`, "longer than approval_timeout (15m0s)"},
		{"agent's hold", "", `approval_hold = "16m"`, `approval_hold = "16m"`, "longer than approval_timeout (15m0s)"},
		{"no unit", `approval_timeout = 300`, "", `approval_timeout = 300`, "needs a unit"},
		{"no unit, agent's hold", `approval_timeout = 300`, `approval_hold = "1m"`, `approval_timeout = 300`, "needs a unit"},
		{"agent without unit", "", `approval_timeout = 300`, `approval_timeout = 300`, "needs a unit"},
		{"hold without unit", `approval_hold = 300`, "", `approval_hold = 300`, "needs a unit"},
	} {
		text := approvalText(tc.host, tc.agent)
		_, diags := parse(t, text)
		if len(diags) != 1 {
			t.Errorf("%s: not one error:\n%s", tc.name, allText(diags))
			continue
		}
		line := strings.TrimSpace(strings.Split(text, "\n")[diags[0].Subject.Start.Line-1])
		if line != tc.line || !strings.Contains(diags[0].Detail, tc.says) {
			t.Errorf("%s: at %q: %s", tc.name, line, diags[0].Detail)
		}
	}
}

// approvalText is a configuration with these lines in the host's governance
// block and in the agent's.
func approvalText(host, agent string) string {
	text := strings.Replace(minimalText, "  mode       = \"govern\"\n", "  mode       = \"govern\"\n "+host+"\n", 1)
	return strings.Replace(text, "runtime.command.shell\n}", "runtime.command.shell\n  governance {\n    "+agent+"\n  }\n}", 1)
}
