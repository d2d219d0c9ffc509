package daemon

import (
	"strings"
	"testing"

	"github.com/airlock-host/airlock/host/internal/engine"
)

// TestAHostWithoutAHealthyAgentSaysSo: it is ready all the same, and named in
// trouble with each agent's reason.
func TestAHostWithoutAHealthyAgentSaysSo(t *testing.T) {
	t.Parallel()
	well, ill := engine.AgentView{Name: "a", Healthy: true}, engine.AgentView{Name: "b", Reason: "isolation.docker.c is unavailable: no engine"}
	for name, c := range map[string]struct {
		agents []engine.AgentView
		says   string
	}{
		"one is well":  {[]engine.AgentView{ill, well}, ""},
		"none is well": {[]engine.AgentView{ill, {Name: "c", Reason: "no image"}}, "no agent is healthy, so every dispatch is refused: b: isolation.docker.c is unavailable: no engine; c: no image"},
		"no agent":     {nil, "the configuration has no agent block"},
	} {
		if got := noAgent(c.agents); !strings.HasPrefix(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
