package conformance_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// fakeKit runs the kit against the fake with these faults. Its issuer lies in
// the same process, so that nothing of it can be taken away or outlives it.
func fakeKit(t *testing.T, faults ...string) []conformance.Check {
	t.Helper()
	f := fake.NewRevoker()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { revoker.Register(s, f) })
	if faults == nil {
		faults = []string{}
	}
	config, err := json.Marshal(fake.Config{Faults: faults, Labels: map[string]string{}, Password: "the-password"})
	if err != nil {
		t.Fatal(err)
	}
	configure := &pluginv1.ConfigureRequest{Instance: "fake", ConfigJson: config}
	if _, err := pluginv1.NewPluginClient(conn).Configure(t.Context(), configure); err != nil {
		t.Fatal(err)
	}
	return conformance.Revoker(t.Context(), pluginv1.NewRevokerClient(conn), conformance.RevokerOptions{
		Plugin: pluginv1.NewPluginClient(conn), Configure: configure, HostID: "host",
		Features: f.Describe().GetFeatures(), Secrets: []string{"the-password"}, Timeout: 5 * time.Second,
	})
}

func TestRevokerKitPassesTheFake(t *testing.T) {
	t.Parallel()
	undeclared := []string{
		"revoke-cuts", "retryable", "permanent", "partial-failure-report", "deadline", "cancel",
		"verify-away", "verify-catches-a-lie", "revoke-after-restart", "crash-mid-revoke",
	}
	for _, c := range fakeKit(t) {
		want := conformance.Pass
		if slices.Contains(undeclared, c.Name) {
			want = conformance.NotDeclared
		}
		if c.Result != want {
			t.Errorf("%s: %s, not %s: %s", c.Name, c.Result, want, c.Detail)
		}
	}
}

func TestRevokerKitFindsAFault(t *testing.T) {
	t.Parallel()
	for fault, check := range map[string]string{
		"Revoke=Unavailable:no issuer": "revoke-unknown",
		"Revoke=panic*1":               "reconfigure-live",
		"Revoke=hang*1":                "reconfigure-live",
		"Grant=Internal:broken*1":      "reconfigure-live",
		"Verify=Internal:broken":       "verify-unknown",
		"Configure=Internal:no state":  "reconfigure-live",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for _, c := range fakeKit(t, fault) {
				if c.Name == check && c.Result == conformance.Fail {
					return
				}
			}
			t.Errorf("%s does not fail", check)
		})
	}
}
