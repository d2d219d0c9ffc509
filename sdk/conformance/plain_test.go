package conformance_test

import (
	"slices"
	"testing"

	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/isolation"
)

// A driver without any isolation passes: what it does not do, it says.
func TestAPlainDriverPasses(t *testing.T) {
	t.Parallel()
	testPlain(t, conformance.Options{})
}

// With one cell for many checks they see the same.
func TestAPlainDriverPassesWithASharedCell(t *testing.T) {
	t.Parallel()
	testPlain(t, conformance.Options{ShareCell: true, AtOnce: 3})
}

func testPlain(t *testing.T, o conformance.Options) {
	t.Helper()
	undeclared := []string{
		"mounts-ro", "network-none", "limits-memory", "limits-cpu", "limits-pids", "limits-disk",
		"checkpoint-stops", "checkpoint-restore",
	}
	b := newBench(t, func() isolation.Driver { return fake.NewPlain() })
	checks := b.run(o)
	if len(checks) < 60 {
		t.Errorf("there are %d checks only", len(checks))
	}
	for _, c := range checks {
		t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took)
		wanted := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			wanted = conformance.NotDeclared
		}
		if c.Result != wanted {
			t.Errorf("%s: %s, want %s: %s", c.Name, c.Result, wanted, c.Detail)
		}
	}
}
