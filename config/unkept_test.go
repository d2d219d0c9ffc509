package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// What a driver does not keep is a warning at the attribute that asks for it.
func TestUnkeptIsWarnedAboutWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimalText, "runtime.command.shell\n}", "runtime.command.shell\n  checkpoint = \"on-suspend\"\n  resources {\n    disk = \"1GiB\"\n    memory = \"1GiB\"\n  }\n}", 1)
	c := mustParse(t, text)
	says := map[string]string{"limit.disk": "not-enforced:no quota", "limit.cpu": "not-enforced:nobody asks", "limit.memory": "enforced-by:x", "link": "unprotected: an ordinary user"}
	got := map[string]string{}
	for _, d := range c.CheckUnkept("isolation.host-supervisor.host", says, false) {
		if d.Severity != hcl.DiagWarning {
			t.Errorf("%s is no warning", d.Detail)
		}
		got[strings.TrimSpace(strings.Split(text, "\n")[d.Subject.Start.Line-1])] = d.Detail
	}
	for line, part := range map[string]string{`disk = "1GiB"`: "limit disk: not-enforced:no quota", `checkpoint = "on-suspend"`: "cannot write cells to disk",
		"isolation = isolation.host-supervisor.host": "link: unprotected"} {
		if !strings.Contains(got[line], part) {
			t.Errorf("at %q: %q", line, got[line])
		}
	}
	if len(got) != 3 {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	if d := c.CheckUnkept("isolation.host-supervisor.host", map[string]string{"link": "protected", "limit.disk": "enforced-by:q"}, true); len(d) != 0 {
		t.Errorf("a driver that keeps all: %s", allText(d))
	}
	if d := c.CheckUnkept("isolation.docker.other", says, false); len(d) != 0 {
		t.Errorf("a driver that the agent does not use: %s", allText(d))
	}
}

func TestWorkspaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, says := range map[string]string{dir: "", filepath.Join(dir, "none"): "no such file", file: "not a directory"} {
		c := mustParse(t, strings.Replace(minimalText, "runtime.command.shell\n}", "runtime.command.shell\n  workspace {\n    source = \""+source+"\"\n    mode = \"copy\"\n  }\n}", 1))
		diags := c.CheckPlaces()
		if says == "" && len(diags) == 0 {
			continue
		}
		if len(diags) != 1 || !diags.HasErrors() || diags[0].Subject.Start.Line != 8 || !strings.Contains(diags[0].Detail, says) || says == "" {
			t.Errorf("%s: %s", source, allText(diags))
		}
	}
}

// The plugins are asked about their blocks although something else is wrong.
func TestKeepBroken(t *testing.T) {
	t.Parallel()
	text := minimalText + "nonsense = 1\n"
	if c, _ := parse(t, text); c != nil {
		t.Error("a broken configuration is given")
	}
	opts := testOptions()
	opts.KeepBroken = true
	c, diags := Parse([]Source{{Name: "test.hcl", Bytes: []byte(text)}}, opts)
	if c == nil || !diags.HasErrors() || len(c.Instances) != 2 || c.Instances[0].Invalid != "" {
		t.Errorf("%v %v", c, diags)
	}
}

// A second reading of the same text is no change, although no plugin was asked
// about it again.
func TestAdoptedSayingsAreNoChanges(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimalText, `runtime "command" "shell" {}`, "runtime \"command\" \"shell\" {\n  config {\n    image = \"a\"\n    key   = secret(\"file:/secret\")\n  }\n}", 1)
	schema := &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{{Name: "image", Type: "string"}, {Name: "key", Type: "string", Sensitive: true}}}
	asked := func() *Config {
		c := mustParse(t, text)
		for _, i := range c.Instances {
			if i.Driver == "command" {
				if _, diags := DecodePlugin(i, schema, nil); diags.HasErrors() {
					t.Fatal(diags)
				}
			}
		}
		return c
	}
	host := asked()
	before := host.Settings()
	again := mustParse(t, text)
	again.Adopt(host)
	kept := Keep(before, again.Settings())
	if x := kept["runtime.command.shell.config.image"]; x.Text != `"a"` || x.Digest == "" {
		t.Errorf("after a reload the host shows %+v", x)
	}
	// As validate --diff sees it, with the plugin asked and without.
	overWire := FromHost(SettingList(kept))
	for name, c := range map[string]*Config{"asked": asked(), "not asked": mustParse(t, text)} {
		local := c.Settings()
		for path, x := range overWire {
			x.ours = "" // it never leaves the host
			overWire[path] = x
		}
		if changes := Changes(overWire, local); len(changes) != 0 {
			t.Errorf("%s: changes that are none: %+v", name, changes)
		}
	}
}
