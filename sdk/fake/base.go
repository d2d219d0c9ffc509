package fake

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Config is the config of every fake.
type Config struct {
	Faults   []string          `json:"faults"`   // "METHOD=ACTION", see Faults.Set
	Health   string            `json:"health"`   // "STATE:REASON"; empty: healthy
	Labels   map[string]string `json:"labels"`   // shown as health attributes
	Fixed    string            `json:"fixed"`    // a change needs a new process
	Password string            `json:"password"` // sensitive
}

// base is what the fakes share.
type base struct {
	plugin.Defaults
	Faults

	describe *pluginv1.DescribeResponse
	fixed    *string
	request  *pluginv1.ConfigureRequest
}

// nameFromArgs is NAME of the airlock-KIND-NAME that the process was started
// as, so that one binary can be many plugins.
func nameFromArgs(kind string) string {
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "airlock-"+kind+"-")
	if !ok {
		return "fake"
	}
	return name
}

func newBase(kind, summary string, capabilities, features []string) base {
	return base{describe: &pluginv1.DescribeResponse{
		Name: nameFromArgs(kind), Version: "0.1.0", Summary: summary,
		Capabilities: capabilities, Features: features,
		Schema: plugin.Schema(
			plugin.StringList("faults", "Faults to show, each METHOD=ACTION.", plugin.Default([]string{})),
			plugin.String("health", "Health to report, as STATE:REASON.", plugin.Default("")),
			plugin.StringMap("labels", "Attributes to report with the health.", plugin.Default(map[string]string{})),
			plugin.String("fixed", "A value that cannot change while the process lives.", plugin.Default("")),
			plugin.String("password", "A secret, for tests of redaction.", plugin.Sensitive()),
		),
		Needs: []*pluginv1.Need{{What: "path", Value: "state_dir", Reason: "to find its things again"}},
	}}
}

// Describe describes the fake.
func (b *base) Describe() *pluginv1.DescribeResponse { return b.describe }

// Validate refuses faults that it does not know, by their place in the list.
func (b *base) Validate(_ context.Context, config []byte) []*pluginv1.Diagnostic {
	var c Config
	if err := plugin.DecodeConfig(config, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The config cannot be read", err.Error())}
	}
	var found []*pluginv1.Diagnostic
	for i, item := range c.Faults {
		var scratch Faults
		if err := scratch.Replace([]string{item}); err != nil {
			found = append(found, plugin.Problem(plugin.Path("faults", i), "Unknown fault", err.Error()))
		}
	}
	return found
}

// Configure takes faults and health over live; a change of fixed is refused.
func (b *base) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error {
	if err := b.Hit(ctx, "Configure"); err != nil {
		return err
	}
	var c Config
	if err := plugin.DecodeConfig(req.GetConfigJson(), &c); err != nil {
		return err
	}
	if b.fixed != nil && *b.fixed != c.Fixed {
		return plugin.NeedsRestart("fixed", "it is part of everything that was made")
	}
	if err := b.Replace(c.Faults); err != nil {
		return plugin.InvalidArgument("%v", err)
	}
	b.fixed, b.request = &c.Fixed, req
	switch state, reason, _ := strings.Cut(c.Health, ":"); state {
	case "degraded":
		b.Health().Degraded(reason, c.Labels)
	case "unavailable":
		b.Health().Unavailable(reason, c.Labels)
	default:
		b.Health().Healthy(c.Labels)
	}
	return nil
}

// Shutdown can be told to go wrong like the rest.
func (b *base) Shutdown(ctx context.Context) error { return b.Hit(ctx, "Shutdown") }
