package tools

import (
	"slices"
	"testing"

	"github.com/airlock-host/airlock/host/internal/engine"
)

// The scopes of the tools are those that a task token can be given.
func TestScopesAreThoseOfATaskToken(t *testing.T) {
	t.Parallel()
	if got := engine.MCPScopes(); !slices.Equal(got, Scopes()) {
		t.Errorf("%v is not %v", got, Scopes())
	}
	for _, tool := range All(nil, &Effects{}) {
		if tool.Scope == "" && !tool.Gateway || tool.Scope != "" && !slices.Contains(Scopes(), tool.Scope) {
			t.Errorf("%s needs %q", tool.Name, tool.Scope)
		}
	}
}
