package plugin_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/plugin/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, driver *fake.Driver) (pluginv1.PluginClient, pluginv1.IsolationClient) {
	t.Helper()
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { isolation.Register(s, driver) })
	return pluginv1.NewPluginClient(conn), pluginv1.NewIsolationClient(conn)
}

func configure(t *testing.T, client pluginv1.PluginClient, config string) error {
	t.Helper()
	_, err := client.Configure(context.Background(), &pluginv1.ConfigureRequest{ConfigJson: []byte(config)})
	return err
}

func TestDescribeIsCompleted(t *testing.T) {
	t.Parallel()
	client, _ := serve(t, fake.NewDriver())
	d, err := client.Describe(context.Background(), &pluginv1.DescribeRequest{})
	if err != nil || d.GetKind() != pluginv1.Kind_KIND_ISOLATION || len(d.GetContracts()) != 1 || d.GetContracts()[0] != plugin.Contract {
		t.Errorf("%v %v", d, err)
	}
	for _, a := range d.GetSchema().GetAttributes() {
		if a.GetDescription() == "" {
			t.Errorf("attribute %s has no description", a.GetName())
		}
	}
}

func TestHealthIsSentAtOnceAndOnEveryChange(t *testing.T) {
	t.Parallel()
	driver := fake.NewDriver()
	client, _ := serve(t, driver)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(state pluginv1.HealthState, reason string) {
		t.Helper()
		h, err := stream.Recv()
		if err != nil || h.GetState() != state || h.GetReason() != reason {
			t.Fatalf("%v %v, want %s %q", h, err, state, reason)
		}
	}
	want(pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE, "not configured yet")
	if err := configure(t, client, `{}`); err != nil {
		t.Fatal(err)
	}
	want(pluginv1.HealthState_HEALTH_STATE_HEALTHY, "")
	driver.Health().Healthy(map[string]string{}) // the same again: nothing is sent
	driver.Health().Degraded("slow", nil)
	want(pluginv1.HealthState_HEALTH_STATE_DEGRADED, "slow")
	driver.Health().Unavailable("engine down", nil)
	want(pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE, "engine down")
	second, err := client.Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := second.Recv(); err != nil || h.GetReason() != "engine down" {
		t.Errorf("a second watcher gets %v %v", h, err)
	}
}

// quiet is a plugin that never reports its health.
type quiet struct {
	plugin.Defaults
	isolation.Unimplemented
}

func (*quiet) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{Name: "quiet", Version: "1.0.0"}
}

func (*quiet) Configure(context.Context, *pluginv1.ConfigureRequest) error { return nil }

func TestASilentPluginIsHealthyOnceConfigured(t *testing.T) {
	t.Parallel()
	driver := &quiet{}
	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { isolation.Register(s, driver) })
	if err := configure(t, pluginv1.NewPluginClient(conn), `{}`); err != nil {
		t.Fatal(err)
	}
	if h := driver.Health().Current(); h.GetState() != pluginv1.HealthState_HEALTH_STATE_HEALTHY {
		t.Errorf("%v", h)
	}
	_, err := pluginv1.NewIsolationClient(conn).Checkpoint(context.Background(), &pluginv1.CheckpointRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an optional method: %v", err)
	}
}

func TestAReconfigureIsLiveOrRefusedByName(t *testing.T) {
	t.Parallel()
	driver := fake.NewDriver()
	client, _ := serve(t, driver)
	if err := configure(t, client, `{"fixed":"a"}`); err != nil {
		t.Fatal(err)
	}
	if err := configure(t, client, `{"fixed":"a","health":"degraded:x"}`); err != nil {
		t.Errorf("a live change: %v", err)
	}
	err := configure(t, client, `{"fixed":"b","health":"unavailable:y"}`)
	if attribute, ok := plugin.RestartAttribute(err); !ok || attribute != "fixed" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a change that needs a restart: %v", err)
	}
	if h := driver.Health().Current(); h.GetReason() != "x" {
		t.Errorf("the refused config is in force: %v", h)
	}
	if err := configure(t, client, `{"unknown":1}`); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown attribute: %v", err)
	}
	if _, ok := plugin.RestartAttribute(plugin.FailedPrecondition("no")); ok {
		t.Error("any FailedPrecondition counts as a restart")
	}
}

func TestValidateAnswersWithPaths(t *testing.T) {
	t.Parallel()
	client, _ := serve(t, fake.NewDriver())
	reply, err := client.Validate(context.Background(), &pluginv1.ValidateRequest{ConfigJson: []byte(`{"faults":["Create=hang","Stop=explode"]}`)})
	if err != nil || len(reply.GetDiagnostics()) != 1 {
		t.Fatalf("%v %v", reply, err)
	}
	path := reply.GetDiagnostics()[0].GetPath()
	if len(path) != 2 || path[0].GetAttribute() != "faults" || path[1].GetIndex() != 1 {
		t.Errorf("path %v", path)
	}
}

func TestFaultsReachTheCallerWithTheirCodes(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]struct {
		code    codes.Code
		message string
	}{
		"panic":                   {codes.Internal, "the plugin panicked in /airlock.plugin.v1.Isolation/Inspect: fake: told to panic in Inspect"},
		"Unavailable:no engine":   {codes.Unavailable, "no engine"},
		"FailedPrecondition:busy": {codes.FailedPrecondition, "busy"},
		"delay:1ms":               {codes.NotFound, "no cell x with incarnation 0"},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			driver := fake.NewDriver()
			if err := driver.Set("Inspect", action); err != nil {
				t.Fatal(err)
			}
			_, client := serve(t, driver)
			_, err := client.Inspect(context.Background(), &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: "x"}})
			if status.Code(err) != want.code || status.Convert(err).Message() != want.message {
				t.Errorf("%v", err)
			}
			if n := driver.Calls("Inspect"); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

func TestAFaultWithACountEnds(t *testing.T) {
	t.Parallel()
	var faults fake.Faults
	if err := faults.Set("X", "Unavailable:away*2"); err != nil {
		t.Fatal(err)
	}
	for n, want := range []codes.Code{codes.Unavailable, codes.Unavailable, codes.OK} {
		if got := status.Code(faults.Hit(context.Background(), "X")); got != want {
			t.Errorf("call %d: %s, want %s", n, got, want)
		}
	}
	for _, bad := range []string{"explode", "hang*x", "hang*0", "delay:soon", "OK:fine"} {
		if err := faults.Set("X", bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestAMessageOver16MiBIsRefused(t *testing.T) {
	t.Parallel()
	client, _ := serve(t, fake.NewDriver())
	big := `{"health":"` + strings.Repeat("x", plugin.MaxMessageBytes) + `"}`
	if err := configure(t, client, big); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
}

func TestSchemaBuilders(t *testing.T) {
	t.Parallel()
	a := plugin.Number("cpu", "CPUs.", plugin.Default(2), plugin.Range(0.5, 64), plugin.Required(), plugin.Sensitive())
	if a.GetType() != "number" || a.GetDefaultJson() != "2" || a.GetValidators()[0].GetRange().GetMax() != 64 || !a.GetRequired() || !a.GetSensitive() {
		t.Errorf("%v", a)
	}
	b := plugin.StringList("p", "P.", plugin.Pattern("^a"), plugin.OneOf("a", "b"), plugin.AbsolutePath())
	if v := b.GetValidators(); len(v) != 3 || v[0].GetPattern() != "^a" || v[1].GetOneOf().GetValues()[1] != "b" || v[2].GetFormat() != pluginv1.Format_FORMAT_ABSOLUTE_PATH {
		t.Errorf("%v", b)
	}
	path := plugin.Path("a", 3, plugin.MapKey("k"))
	if path[0].GetAttribute() != "a" || path[1].GetIndex() != 3 || path[2].GetKey() != "k" {
		t.Errorf("%v", path)
	}
}
