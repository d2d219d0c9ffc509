package driver

import (
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

// These run the kit that third parties get, against real driver processes.

func TestConformanceAsRoot(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, nil)
	conform(r, conformance.Options{UID: 71234, GID: 71234}, "limits-disk", "checkpoint-stops", "checkpoint-restore")
}

func TestConformanceAsRootWithTheAgentsUser(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, 0, map[string]any{"landlock": false})
	conform(r, conformance.Options{Only: []string{
		"start-ok", "user-mapping", "no-new-privs", "mounts", "mounts-ro", "stop-kills-grandchildren", "recover-after-plugin-kill",
	}})
}

func TestConformanceAsOrdinaryUser(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, nobody, nil)
	conform(r, conformance.Options{}, "limits-disk", "limits-memory", "limits-cpu", "link-protected", "checkpoint-stops", "checkpoint-restore")
}

func TestConformanceOfPlainProcesses(t *testing.T) {
	asRoot(t)
	t.Parallel()
	r := newRig(t, nobody, map[string]any{"namespaces": "none"})
	conform(r, conformance.Options{Network: pluginv1.NetworkMode_NETWORK_MODE_OPEN},
		"network-none", "mounts-ro", "limits-disk", "limits-memory", "limits-cpu", "limits-pids",
		"link-protected", "checkpoint-stops", "checkpoint-restore")
}

// conform fails on every check that fails, and on every one that is not
// declared but expected to be.
func conform(r *rig, o conformance.Options, undeclared ...string) {
	r.t.Helper()
	o.AgentBinary, o.AgentSHA256, o.Dir, o.HostID = agent.agent, agent.sum, r.dir, r.host
	o.Owner = int(r.uid)
	o.Features, o.Restart = (&Driver{}).Describe().GetFeatures(), r.restart
	allowed := map[string]bool{}
	for _, n := range undeclared {
		allowed[n] = true
	}
	for _, c := range conformance.Isolation(r.t.Context(), r.client, o) {
		switch {
		case c.Result == conformance.Fail, c.Result == conformance.NotDeclared && !allowed[c.Name]:
			r.t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		case c.Result == conformance.Pass && allowed[c.Name]:
			r.t.Errorf("%s passes, where it was expected not to be declared", c.Name)
		default:
			r.t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took)
		}
	}
}
