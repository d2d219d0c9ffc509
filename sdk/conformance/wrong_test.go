package conformance_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
	"github.com/airlock-host/airlock/sdk/runtime"
)

// A kit that nothing fails is worth nothing: each wrong driver is seen by the
// check that is there for it.
func TestWrongDriversAreSeen(t *testing.T) {
	t.Parallel()
	all := fake.WrongDrivers()
	if len(all) < 30 {
		t.Errorf("there are %d wrong drivers only", len(all))
	}
	for _, w := range all {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, w.Driver)
			checks := b.run(conformance.Options{
				Only: []string{w.Check}, Timeout: 10 * time.Second, Network: pluginv1.NetworkMode_NETWORK_MODE_OPEN,
			})
			if len(checks) != 1 {
				t.Fatalf("the check %s was run %d times", w.Check, len(checks))
			}
			if c := checks[0]; c.Result != conformance.Fail {
				t.Errorf("%s: %s %s", c.Name, c.Result, c.Detail)
			} else {
				t.Logf("%s: %s (%v)", c.Name, c.Detail, c.Took)
			}
		})
	}
}

// What is wrong with a plugin as a program is seen too.
func TestWrongProgramsAreSeen(t *testing.T) {
	t.Parallel()
	path := plugin(t, "airlock-isolation-mutant", "github.com/airlock-host/airlock/sdk/fake/testdata/mutant")
	mutants := map[string]string{
		"stdout-first": "handshake", "stdout-later": "no-stdout-pollution", "no-reason": "probe-reason-when-undetected",
		"no-description": "schema-has-descriptions", "bad-type": "schema-roundtrip", "other-name": "describe-matches-file",
		"no-version": "describe-complete", "slow-describe": "describe-immediate", "no-capability": "capability-declared",
		"health-late": "probe-immediate", "health-dear": "probe-cheap", "unknown-accepted": "config-reject-unknown",
		"no-paths": "validate-has-paths", "needs-env": "env-not-required", "invalid-breaks": "reconfigure-invalid-keeps-old",
		"exclusive": "successor-beside-predecessor", "once": "reconfigure-live", "shutdown-fails": "shutdown-hook",
		"serves-unconfigured": "not-configured-refused",
	}
	for mutant, name := range mutants {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			r := seen(t, path, mutant, name)
			if !failed(r, name) {
				t.Errorf("%s is not seen by %s: %v", mutant, name, r.Checks)
			}
		})
	}
	t.Run("logs-secret", func(t *testing.T) {
		t.Parallel()
		if r := seen(t, path, "logs-secret", "start-ok", "secrets-not-in-log"); !failed(r, "secrets-not-in-log") {
			t.Errorf("a secret in the log is not seen: %v", r.Checks)
		}
	})
	t.Run("good", func(t *testing.T) {
		t.Parallel()
		names := slices.AppendSeq([]string{"start-ok", "secrets-not-in-log"}, maps.Values(mutants))
		if r := seen(t, path, "", names...); r.Count(conformance.Fail) > 0 {
			t.Errorf("without anything wrong: %v", r.Checks)
		}
	})
}

func seen(t *testing.T, path, mutant string, only ...string) *conformance.Report {
	t.Helper()
	r, err := conformance.Binary(t.Context(), path, conformance.BinaryOptions{
		AgentBinary: programs.agent, Env: []string{"AIRLOCK_MUTANT=" + mutant}, Only: only, Timeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func failed(r *conformance.Report, name string) bool {
	return slices.ContainsFunc(r.Checks, func(c conformance.Check) bool { return c.Name == name && c.Result == conformance.Fail })
}

func TestWrongRuntimesAreSeen(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, timeout time.Duration, make func() runtime.Runtime, only ...string) []conformance.Check {
		start := func(ctx context.Context) (pluginv1.RuntimeClient, error) {
			r := make()
			conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { runtime.Register(s, r) })
			_, err := pluginv1.NewPluginClient(conn).Configure(ctx, &pluginv1.ConfigureRequest{ConfigJson: defaults(r.Describe())})
			return pluginv1.NewRuntimeClient(conn), err
		}
		client, err := start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conformance.Runtime(t.Context(), client, conformance.RuntimeOptions{Restart: start, Only: only, Timeout: timeout})
	}
	for _, w := range fake.WrongRuntimes() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range run(t, 5*time.Second, w.Runtime, w.Check) {
				if c.Result != conformance.Fail {
					t.Errorf("%s: %s %s", c.Name, c.Result, c.Detail)
				}
			}
		})
	}
	t.Run("good", func(t *testing.T) {
		t.Parallel()
		for _, c := range run(t, time.Minute, func() runtime.Runtime { return fake.NewRuntime() }) {
			if c.Result == conformance.Fail {
				t.Errorf("%s: %s", c.Name, c.Detail)
			}
		}
	})
}
