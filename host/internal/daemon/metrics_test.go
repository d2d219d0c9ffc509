package daemon

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/gateway"
	"github.com/airlock-host/airlock/host/internal/telemetry"
)

// recorder notes the names of what is registered.
type recorder struct{ names []string }

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (r *recorder) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() { defer close(ch); c.Describe(ch) }()
	for d := range ch {
		r.names = append(r.names, fqName.FindStringSubmatch(d.String())[1])
	}
	return nil
}

func (r *recorder) MustRegister(list ...prometheus.Collector) {
	for _, c := range list {
		_ = r.Register(c)
	}
}

func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// allMetrics are the names of everything that a host registers.
func allMetrics(t *testing.T) []string {
	t.Helper()
	r := &recorder{}
	if _, err := telemetry.NewMetrics(r); err != nil {
		t.Fatal(err)
	}
	r.MustRegister(telemetry.NewStateMetrics(func() telemetry.State { return telemetry.State{} }))
	if _, err := telemetry.NewExporter(telemetry.TraceOptions{Endpoint: "http://127.0.0.1:1", Register: r}); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r.MustRegister(newGatewayMetrics(g))
	s, err := api.New(api.Options{Register: r, Operators: &api.Operators{}, Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	slices.Sort(r.names)
	return slices.Compact(r.names)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What operators read about and what there is are the same.
func TestEveryMetricIsInThePage(t *testing.T) {
	t.Parallel()
	names := allMetrics(t)
	page := read(t, "../../../docs/metrics.md")
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(airlock_[a-z_]+)` ").FindAllStringSubmatch(page, -1) {
		told = append(told, m[1])
	}
	for _, n := range names {
		if !slices.Contains(told, n) {
			t.Errorf("docs/metrics.md does not tell of %s", n)
		}
	}
	for _, n := range told {
		if !slices.Contains(names, n) {
			t.Errorf("docs/metrics.md tells of %s, which there is not", n)
		}
	}
}

// A panel or an alert on a metric that is not there would be empty for ever.
func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	names := allMetrics(t)
	for _, file := range []string{"../../../config/dist/grafana-dashboard.json", "../../../config/dist/alerts.yml"} {
		for _, n := range regexp.MustCompile(`airlock_[a-z_]+`).FindAllString(read(t, file), -1) {
			base := n
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !slices.Contains(names, n) && !slices.Contains(names, base) {
				t.Errorf("%s shows %s, which there is not", file, n)
			}
		}
	}
}
