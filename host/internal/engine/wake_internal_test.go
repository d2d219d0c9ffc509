package engine

import (
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// A notice is delivered by whatever of a plan the session reads.
func TestAPlanCarriesANotice(t *testing.T) {
	t.Parallel()
	const id = "wc_wake_abcdefghijklmnop"
	for name, p := range map[string]*pluginv1.LaunchPlan{
		"in an argument": {Argv: []string{"agent", "the wake " + id + " waits"}},
		"in a variable":  {Argv: []string{"agent"}, Env: map[string]string{"NOTICE": id}},
		"in a file":      {Argv: []string{"agent"}, Files: []*pluginv1.PlanFile{{Path: "/x", Content: []byte(id)}}},
	} {
		if !carries(p, id) {
			t.Errorf("%s: not found", name)
		}
	}
	if carries(&pluginv1.LaunchPlan{Argv: []string{"agent"}, Env: map[string]string{"A": "b"}}, id) {
		t.Error("found where it is not")
	}
}
