package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func oneOf(values ...string) []*pluginv1.Validator {
	return []*pluginv1.Validator{{Rule: &pluginv1.Validator_OneOf{OneOf: &pluginv1.StringList{Values: values}}}}
}

func format(f pluginv1.Format) []*pluginv1.Validator {
	return []*pluginv1.Validator{{Rule: &pluginv1.Validator_Format{Format: f}}}
}

func testSchema() *pluginv1.ConfigSchema {
	return &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{
		{Name: "image", Type: "string", Required: true, Description: "The image."},
		{Name: "accel", Type: "string", DefaultJson: `"auto"`, Validators: oneOf("auto", "kvm", "tcg")},
		{Name: "pull", Type: "bool", DefaultJson: "true"},
		{Name: "cpus", Type: "number", Validators: []*pluginv1.Validator{{Rule: &pluginv1.Validator_Range{Range: &pluginv1.Range{Min: 1, Max: 64}}}}},
		{Name: "shell", Type: "list(string)", DefaultJson: `["/bin/sh","-c"]`, Validators: []*pluginv1.Validator{{Rule: &pluginv1.Validator_Pattern{Pattern: `^[^\x00]+$`}}}},
		{Name: "env", Type: "map(string)"},
		{Name: "mounts", Type: "list(object({ source = string, target = string, ro = optional(bool, true) }))"},
		{Name: "wait", Type: "string", Validators: format(pluginv1.Format_FORMAT_DURATION)},
		{Name: "disk", Type: "string", Validators: format(pluginv1.Format_FORMAT_SIZE)},
		{Name: "dir", Type: "string", Validators: format(pluginv1.Format_FORMAT_ABSOLUTE_PATH)},
		{Name: "url", Type: "string", Validators: format(pluginv1.Format_FORMAT_URL)},
		{Name: "anything", Type: "any"},
		{Name: "key", Type: "string", Sensitive: true, Validators: []*pluginv1.Validator{{Rule: &pluginv1.Validator_Pattern{Pattern: "^[a-z0-9-]+$"}}}},
	}}
}

// pluginInstance is an isolation block with this text as its config block.
func pluginInstance(t *testing.T, attrs string, change ...func(*Options)) (*Config, Instance) {
	t.Helper()
	c := mustParse(t, minimalText+"isolation \"docker\" \"c\" {\n  config {\n"+attrs+"\n  }\n}\n", append(change, lenient)...)
	inst, ok := c.Instance("isolation.docker.c")
	if !ok || inst.Invalid != "" {
		t.Fatalf("instance: %+v", inst)
	}
	return c, inst
}

func TestDecodePlugin(t *testing.T) {
	t.Parallel()
	_, inst := pluginInstance(t, `
    image    = "debian:${env("NOTHING", "bookworm")}"
    cpus     = "2"
    pull     = null
    env      = { A = 1, B = true }
    mounts   = [{ source = "/a", target = "/b" }, { source = "/c", target = "/d", ro = false }]
    url      = "http://x/<a>&b?c=d"
    anything = { a = [1, "x", null] }
    key      = secret("env:AIRLOCK_TEST_SECRET")`)
	got, diags := DecodePlugin(inst, testSchema(), nil)
	if len(diags) != 0 {
		t.Fatal(diags)
	}
	want := `{"accel":"auto","anything":{"a":[1,"x",null]},"cpus":2,"dir":null,"disk":null,"env":{"A":"1","B":"true"},"image":"debian:bookworm",` +
		`"key":"` + theSecret + `","mounts":[{"ro":true,"source":"/a","target":"/b"},{"ro":false,"source":"/c","target":"/d"}],"pull":true,"shell":["/bin/sh","-c"],"url":"http://x/<a>&b?c=d","wait":null}`
	var have, wanted any
	if err := errors.Join(json.Unmarshal(got, &have), json.Unmarshal([]byte(want), &wanted)); err != nil || !reflect.DeepEqual(have, wanted) {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}

func TestDecodePluginDiagnostics(t *testing.T) {
	t.Parallel()
	// The block's attributes begin at line 20 of the text.
	for name, tc := range map[string]struct{ attrs, want string }{
		"required":            {``, `test.hcl:19,10 Missing attribute: isolation.docker.c needs the attribute "image". The image.`},
		"required is null":    {`image = env("NONE")`, `test.hcl:20,9 Missing attribute: isolation.docker.c needs the attribute "image". It is set to null here`},
		"unknown":             {"image = \"x\"\nacel = \"kvm\"", `test.hcl:21,1 Unknown attribute: The plugin of isolation.docker.c has no attribute "acel". Did you mean "accel"?`},
		"one of":              {"image = \"x\"\naccel = \"kwm\"", `test.hcl:21,9 Bad value: The attribute "accel": "kwm" is not one of "auto", "kvm", "tcg". Did you mean "kvm"?`},
		"type":                {"image = [\"x\"]", `test.hcl:20,9 Wrong type: The attribute "image" is a string: string required`},
		"number":              {"image = \"x\"\ncpus = \"two\"", `test.hcl:21,8 Wrong type: The attribute "cpus" is a number: a number is required.`},
		"range":               {"image = \"x\"\ncpus = 65", `test.hcl:21,8 Bad value: The attribute "cpus": must be from 1 to 64.`},
		"element":             {"image = \"x\"\nshell = [\n\"a\",\n\"\"\n]", `test.hcl:23,1 Bad value: The attribute "shell": "" does not match`},
		"element type":        {"image = \"x\"\nshell = [\"a\",\n[]\n]", `test.hcl:22,1 Wrong type: The attribute "shell" is a list(string)`},
		"null element":        {"image = \"x\"\nshell = [\"a\", null]", `test.hcl:21,15 Bad value: The attribute "shell": an element must not be null.`},
		"key of an object":    {"image = \"x\"\nmounts = [{ source = \"/a\", targt = \"/b\", target = \"/c\" }]", `test.hcl:21,36 Unknown attribute: The objects of "mounts" have no attribute "targt". Did you mean "target"?`},
		"missing in object":   {"image = \"x\"\nmounts = [{ source = \"/a\" }]", `test.hcl:21,11 Wrong type: The attribute "mounts"`},
		"duration":            {"image = \"x\"\nwait = \"5 min\"", `"5 min" is not a duration such as "1m30s".`},
		"size":                {"image = \"x\"\ndisk = 5", `a size needs a unit`},
		"path":                {"image = \"x\"\ndir = \"a/b\"", `"a/b" is not an absolute path.`},
		"url":                 {"image = \"x\"\nurl = \"file:///x\"", `The attribute "url": is not an http or https URL with a host.`},
		"secret in plain":     {"image = secret(\"env:AIRLOCK_TEST_SECRET\")", `test.hcl:20,9 Secret not allowed here: The attribute "image" is not secret for its plugin`},
		"secret inside":       {"image = \"x\"\nenv = { A = secret(\"env:AIRLOCK_TEST_SECRET\") }", `Secret not allowed here`},
		"secret not there":    {"image = \"x\"\nkey = secret(\"file:/none\")", `Call to function "secret" failed: secret file /none: file does not exist.`},
		"sensitive bad value": {"image = \"x\"\nkey = \"Hunter 2\"", `test.hcl:21,7 Bad value: The attribute "key": the value does not match "^[a-z0-9-]+$".`},
		"sensitive bad type":  {"image = \"x\"\nkey = [\"Hunter 2\"]", `Wrong type: The attribute "key" is a string`},
		"variable":            {"image = foo.bar", `Variables not allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := &Sources{}
			_, inst := pluginInstance(t, tc.attrs, func(o *Options) { o.Sources = sources })
			got, diags := DecodePlugin(inst, testSchema(), nil)
			if got != nil || !diags.HasErrors() {
				t.Fatalf("accepted: %s", got)
			}
			if text := allText(diags); !strings.Contains(text, tc.want) {
				t.Errorf("got  %swant %s", text, tc.want)
			}
			var out bytes.Buffer
			if err := WriteDiagnostics(&out, diags, sources, 0, false); err != nil {
				t.Fatal(err)
			}
			all, err := json.Marshal(DiagnosticsJSON(diags, sources))
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{theSecret, "Hunter 2"} {
				if strings.Contains(out.String(), secret) || bytes.Contains(all, []byte(secret)) {
					t.Errorf("a secret is printed:\n%s%s", out.String(), all)
				}
			}
		})
	}
}

func TestDecodePluginRefusesBadSchemas(t *testing.T) {
	t.Parallel()
	for name, attr := range map[string]*pluginv1.Attribute{
		"no type":         {Name: "x"},
		"no such type":    {Name: "x", Type: "strnig"},
		"deep type":       {Name: "x", Type: strings.Repeat("list(", 500) + "string" + strings.Repeat(")", 500)},
		"call":            {Name: "x", Type: `env("A")`},
		"bad name":        {Name: "x y", Type: "string"},
		"no name":         {Type: "string"},
		"twice":           {Name: "image", Type: "string"},
		"bad default":     {Name: "x", Type: "number", DefaultJson: `"a"`},
		"default no JSON": {Name: "x", Type: "string", DefaultJson: `a`},
		"escape":          {Name: "\x1b[31m", Type: "string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, inst := pluginInstance(t, `image = "x"`)
			schema := testSchema()
			schema.Attributes = append(schema.Attributes, attr)
			got, diags := DecodePlugin(inst, schema, nil)
			if got != nil || !strings.Contains(allText(diags), "Bad plugin schema") || strings.Contains(allText(diags), "\x1b") {
				t.Errorf("%s %v", got, diags)
			}
		})
	}
	for name, v := range map[string]*pluginv1.Validator{
		"no rule":    {},
		"bad regexp": {Rule: &pluginv1.Validator_Pattern{Pattern: "("}},
		"range":      {Rule: &pluginv1.Validator_Range{Range: &pluginv1.Range{Max: 1}}},
		"format":     {Rule: &pluginv1.Validator_Format{}},
	} {
		_, inst := pluginInstance(t, `x = "x"`)
		schema := &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{{Name: "x", Type: "string", Validators: []*pluginv1.Validator{v}}}}
		if got, diags := DecodePlugin(inst, schema, nil); got != nil || !diags.HasErrors() {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// At validation a secret may be out of reach; it is null then, and required all
// the same.
func TestLenientSecretsAreNull(t *testing.T) {
	t.Parallel()
	c, inst := pluginInstance(t, `key = secret("file:/private")`)
	schema := &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{{Name: "key", Type: "string", Sensitive: true, Required: true, Description: "Key."}}}
	got, diags := DecodePlugin(inst, schema, c.LenientEvalContext())
	if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || string(got) != `{"key":null}` {
		t.Errorf("%s %v", got, diags)
	}
	if _, diags := DecodePlugin(inst, schema, c.EvalContext()); !diags.HasErrors() {
		t.Error("a start without the secret is accepted")
	}
	c, inst = pluginInstance(t, `key = secret("env:AIRLOCK_NOT_SET")`)
	if got, diags := DecodePlugin(inst, schema, c.LenientEvalContext()); diags.HasErrors() || string(got) != `{"key":null}` {
		t.Errorf("a variable of another environment: %s %v", got, diags)
	}
	for _, source := range []string{"nowhere", "file:/none", "file:/open"} {
		c, inst = pluginInstance(t, `key = secret("`+source+`")`)
		if _, diags := DecodePlugin(inst, schema, c.LenientEvalContext()); !diags.HasErrors() {
			t.Errorf("the bad source %s is accepted", source)
		}
	}
}

func TestLiteralSecretIsWarnedAbout(t *testing.T) {
	t.Parallel()
	_, inst := pluginInstance(t, "image = \"x\"\nkey = \"hunter2\"")
	got, diags := DecodePlugin(inst, testSchema(), nil)
	if got == nil || len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || diags[0].Summary != "Secret in the configuration" {
		t.Errorf("%v", diags)
	}
}

func TestMapDiagnostics(t *testing.T) {
	t.Parallel()
	attr := func(s string) *pluginv1.PathStep {
		return &pluginv1.PathStep{Step: &pluginv1.PathStep_Attribute{Attribute: s}}
	}
	index := func(i int64) *pluginv1.PathStep { return &pluginv1.PathStep{Step: &pluginv1.PathStep_Index{Index: i}} }
	key := func(s string) *pluginv1.PathStep { return &pluginv1.PathStep{Step: &pluginv1.PathStep_Key{Key: s}} }
	sources := &Sources{}
	// Line 20 is the first one.
	_, inst := pluginInstance(t, "image = \"x\"\nshell = [\"a\",\n  \"b\"]\nenv = { A = \"1\",\n  \"B\" = \"2\" }\nmounts = ([{ source = \"/a\",\n  target = \"/b\" }])\nkey = \"hunter2\"\ncpus = env(\"N\", \"3\")",
		func(o *Options) { o.Sources = sources })
	if got, diags := DecodePlugin(inst, testSchema(), nil); got == nil {
		t.Fatal(diags)
	}
	for name, tc := range map[string]struct {
		path []*pluginv1.PathStep
		want string
	}{
		"whole block":             {nil, "test.hcl:18,1"},
		"attribute":               {[]*pluginv1.PathStep{attr("image")}, "test.hcl:20,9"},
		"index":                   {[]*pluginv1.PathStep{attr("shell"), index(1)}, "test.hcl:22,3"},
		"index out of range":      {[]*pluginv1.PathStep{attr("shell"), index(7)}, "test.hcl:21,9"},
		"negative index":          {[]*pluginv1.PathStep{attr("shell"), index(-1)}, "test.hcl:21,9"},
		"key":                     {[]*pluginv1.PathStep{attr("env"), key("B")}, "test.hcl:24,9"},
		"object in list":          {[]*pluginv1.PathStep{attr("mounts"), index(0), attr("target")}, "test.hcl:26,12"},
		"missing in object":       {[]*pluginv1.PathStep{attr("mounts"), index(0), attr("ro")}, "test.hcl:25,12"},
		"attribute that is unset": {[]*pluginv1.PathStep{attr("wait")}, "test.hcl:18,1"},
		"no such attribute":       {[]*pluginv1.PathStep{attr("zzz"), index(1)}, "test.hcl:18,1"},
		"into a call":             {[]*pluginv1.PathStep{attr("cpus"), index(1)}, "test.hcl:28,8"},
		"empty step":              {[]*pluginv1.PathStep{{}}, "test.hcl:18,1"},
	} {
		diags := MapDiagnostics(inst, []*pluginv1.Diagnostic{{Severity: pluginv1.Severity_SEVERITY_ERROR, Summary: "no", Detail: "do it", Path: tc.path}})
		if len(diags) != 1 || place(*diags[0].Subject) != tc.want || diags[0].Summary != "isolation.docker.c: no" || diags[0].Severity != hcl.DiagError {
			t.Errorf("%s: %s, want %s", name, allText(diags), tc.want)
		}
	}
	diags := MapDiagnostics(inst, []*pluginv1.Diagnostic{
		{Severity: pluginv1.Severity_SEVERITY_WARNING, Summary: "key hunter2 is\x1b[31m weak\u202e", Detail: strings.Repeat("x", 5000), Path: []*pluginv1.PathStep{attr("key")}},
		{Summary: "no severity"},
	})
	var out bytes.Buffer
	if err := WriteDiagnostics(&out, diags, sources, 0, false); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "hunter2") || strings.Contains(text, "\x1b") || strings.Contains(text, "\u202e") || len(text) > 2000 {
		t.Errorf("untrusted text comes through: %s", text)
	}
	if !strings.Contains(text, "Warning: isolation.docker.c: key (sensitive) is[31m weak") || !strings.Contains(text, "Error: isolation.docker.c: no severity") {
		t.Errorf("got %s", text)
	}
}

func TestDigestsAndSummary(t *testing.T) {
	t.Parallel()
	secretOf := func(v string) func(*Options) {
		return func(o *Options) { o.LookupEnv = func(string) (string, bool) { return v, true } }
	}
	text := minimalText + "isolation \"docker\" \"c\" {\n  config {\n    image = \"debian\"\n    key = secret(\"env:S\")\n    open = env(\"S\")\n    literal = \"hunter2\"\n  }\n}\n"
	off := "orchestrator {\n  endpoint = \"\"\n  name = \"n\"\n}\n"
	base := mustParse(t, text+off, secretOf("one"))
	same := mustParse(t, "# other layout\n"+off+strings.ReplaceAll(text, "    image = \"debian\"\n    key = secret(\"env:S\")\n", "    key = secret(\"env:S\")\n    image = \"${\"debian\"}\"\n"), secretOf("one"))
	if base.Digest() != same.Digest() {
		t.Error("the layout changes the digest")
	}
	if inst, _ := base.Instance("isolation.docker.c"); len(inst.ConfigDigest()) != 64 {
		t.Error("no digest")
	}
	for name, change := range map[string]string{"image": strings.Replace(text, "debian", "alpine", 1), "slots": strings.Replace(text, "agent \"a\" {", "agent \"a\" {\n  slots = 5", 1), "mode": strings.Replace(text, `"govern"`, `"observe"`, 1), "uids": strings.Replace(text, "1000", "1001", 1)} {
		if mustParse(t, change+off, secretOf("one")).Digest() == base.Digest() {
			t.Errorf("%s does not change the digest", name)
		}
	}
	if mustParse(t, text+off, secretOf("two")).Digest() == base.Digest() {
		t.Error("env() is not in the digest by value")
	}

	spec := base.AgentSpec(base.Agents[0])
	slots := mustParse(t, strings.Replace(text, "agent \"a\" {", "agent \"a\" {\n  slots = 5", 1)+off, secretOf("one"))
	if slots.AgentSpec(slots.Agents[0]).SpecDigest() != spec.SpecDigest() {
		t.Error("slots are in a mission's spec")
	}
	var back AgentSpec
	if err := json.Unmarshal(spec.JSON(), &back); err != nil || back.SpecDigest() != spec.SpecDigest() {
		t.Errorf("a spec does not survive its JSON: %v", err)
	}

	summary := func(schemas func(string) *pluginv1.ConfigSchema) string {
		b, err := json.Marshal(base.Summary(schemas))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if s := summary(nil); strings.Contains(s, "hunter2") || strings.Contains(s, "debian") || !strings.Contains(s, `"literal":"(not shown)"`) {
		t.Errorf("without schemas: %s", s)
	}
	schema := &pluginv1.ConfigSchema{Attributes: []*pluginv1.Attribute{{Name: "image", Type: "string"}, {Name: "key", Type: "string"}, {Name: "literal", Type: "string", Sensitive: true}}}
	if s := summary(func(string) *pluginv1.ConfigSchema { return schema }); strings.Contains(s, "hunter2") || !strings.Contains(s, `"image":"debian"`) || !strings.Contains(s, `"key":"(not shown)"`) || strings.Contains(s, `"one"`) {
		t.Errorf("with a schema: %s", s)
	}
}
