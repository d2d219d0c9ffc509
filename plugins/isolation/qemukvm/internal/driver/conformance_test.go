package driver

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/sdk/conformance"
)

// These run the kit that third parties get, against a real driver process and
// real VMs.

// atOnce is what two processors that emulate others boot in reasonable time.
const atOnce = 4

func TestConformance(t *testing.T) {
	needVM(t)
	r := newRig(t, nil)
	o := conformance.Options{
		UID: 71234, GID: 71234, AgentBinary: built.agent, AgentSHA256: built.sum, Dir: r.dir, HostID: r.host,
		Features: (&Driver{}).Describe().GetFeatures(), Restart: r.restart, Timeout: 5 * time.Minute,
		AtOnce: atOnce, ShareCell: true,
	}
	if only := os.Getenv("AIRLOCK_TEST_ONLY"); only != "" {
		o.Only = strings.Split(only, ",")
	}
	undeclared := map[string]bool{"network-open": true, "undeclared-unimplemented": true}
	o.Progress = func(c conformance.Check) {
		switch {
		case c.Result == conformance.Fail, c.Result == conformance.NotDeclared && !undeclared[c.Name]:
			t.Errorf("%s: %s: %s (%v)", c.Name, c.Result, c.Detail, c.Took)
		case c.Result == conformance.Pass && undeclared[c.Name]:
			t.Errorf("%s passes, where it was expected not to be declared", c.Name)
		default:
			t.Logf("%s: %s %s (%v)", c.Name, c.Result, c.Detail, c.Took)
		}
	}
	conformance.Isolation(t.Context(), r.client, o)
}
