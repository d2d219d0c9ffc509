package driver

import (
	"testing"
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

// The whole kit that third parties get, against the plugin as it is shipped,
// started as a host starts it.
func TestConformanceOfTheBuiltPlugin(t *testing.T) {
	t.Parallel()
	e := shared.get(t)
	report, err := conformance.Binary(t.Context(), have.plugin, conformance.BinaryOptions{
		AgentBinary: have.agent, UID: workload, GID: workload, Timeout: 5 * time.Minute,
		Config: func(*pluginv1.ConfigSchema) ([]byte, error) {
			return block(t, map[string]any{"image": dockertest.Busybox, "endpoint": e.Endpoint(), "pull": pullNever}), nil
		},
		Progress: func(c conformance.Check) { t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took) },
	})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, report.Checks, "limits-disk", "checkpoint-stops", "checkpoint-restore")
}

func TestConformanceWithTheConfiguredUserAndAWritableRoot(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, map[string]any{"user": "71701:71702", "read_only": false})
	conform(r, conformance.Options{Only: []string{
		"start-ok", "user-mapping", "no-new-privs", "mounts", "mounts-ro", "network-none", "stop-kills-grandchildren", "recover-after-plugin-kill",
	}})
}

func TestConformanceWithTheAgentsUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	conform(r, conformance.Options{Only: []string{"start-ok", "user-mapping", "no-new-privs", "mounts", "stop-kills-grandchildren"}})
}

// conform fails on every check that fails, and on every one that is not
// declared but expected to be.
func conform(r *rig, o conformance.Options, undeclared ...string) {
	r.t.Helper()
	o.AgentBinary, o.AgentSHA256, o.Dir, o.HostID = have.agent, have.sum, r.dir, r.host
	o.Features, o.Restart = (&Driver{}).Describe().GetFeatures(), r.restart
	o.Timeout = 3 * time.Minute
	judge(r.t, conformance.Isolation(r.t.Context(), r.client, o), undeclared...)
}

func judge(t testing.TB, checks []conformance.Check, undeclared ...string) {
	t.Helper()
	allowed := map[string]bool{}
	for _, n := range undeclared {
		allowed[n] = true
	}
	for _, c := range checks {
		switch {
		case c.Result == conformance.Fail, c.Result == conformance.NotDeclared && !allowed[c.Name]:
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		case c.Result == conformance.Pass && allowed[c.Name]:
			t.Errorf("%s passes, where it was expected not to be declared", c.Name)
		}
	}
}
