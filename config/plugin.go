package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// instanceState is what all copies of an Instance share: how its body is
// evaluated, and what must never be printed, as DecodePlugin learned it.
type instanceState struct {
	eval *evaluator

	mu        sync.Mutex
	sensitive map[string]bool
	secrets   []string
}

// Adopt takes over what the plugins have said of their attributes in another
// Config of the same host, for the instances that it has too: of one whose block
// did not change no plugin is asked again.
func (c *Config) Adopt(from *Config) {
	known := map[string]*instanceState{}
	for _, i := range from.withPolicies() {
		known[i.Ref()] = i.state
	}
	for _, i := range c.withPolicies() {
		if was := known[i.Ref()]; was != nil && i.state != nil && was != i.state {
			was.mu.Lock()
			sensitive := maps.Clone(was.sensitive)
			was.mu.Unlock()
			i.state.mu.Lock()
			if i.state.sensitive == nil {
				i.state.sensitive = sensitive
			}
			i.state.mu.Unlock()
		}
	}
}

// withPolicies are all plugin instances, the policy's too.
func (c *Config) withPolicies() []Instance {
	list := slices.Clone(c.Instances)
	for _, p := range c.Governance.PolicyPlugins {
		list = append(list, p.Instance)
	}
	return list
}

func emptyBody(at hcl.Range) *hclsyntax.Body {
	return &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: at, EndRange: at}
}

// checkPluginBody finds what is wrong with a config block whatever the plugin's
// schema is, so that `validate` says it without the plugin.
func checkPluginBody(body *hclsyntax.Body) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, block := range body.Blocks {
		diags = append(diags, errorAt(block.TypeRange, "Unknown block", "A config block has attributes only. For an object, write %s = { … }.", block.Type))
	}
	for _, attr := range inOrder(body.Attributes) {
		diags = append(diags, checkExpr(attr.Expr)...)
		diags = append(diags, hclsyntax.VisitAll(attr.Expr, func(n hclsyntax.Node) hcl.Diagnostics {
			if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && call.Name != "env" && call.Name != "secret" {
				return hcl.Diagnostics{errorAt(call.NameRange, "Unknown function", "%s", sentence("There is no function "+call.Name+"; there are env and secret"+didYouMean(call.Name, []string{"env", "secret"})))}
			}
			return nil
		})...)
	}
	return diags
}

// DecodePlugin turns an instance's config block into the JSON object that its
// plugin gets: every attribute of the schema is there, with its default filled
// in, or null. Secrets are read now. ctx is Config.EvalContext() or
// Config.LenientEvalContext(); nil is the former. The result is nil if and only
// if the diagnostics hold an error; it holds secrets and must not be logged.
func DecodePlugin(inst Instance, schema *pluginv1.ConfigSchema, ctx *hcl.EvalContext) ([]byte, hcl.Diagnostics) {
	if inst.state == nil {
		inst.state = &instanceState{}
	}
	if ctx == nil {
		ctx = (&Config{eval: inst.state.eval}).EvalContext()
	}
	body, ok := inst.Body.(*hclsyntax.Body)
	if !ok || body == nil {
		body = emptyBody(inst.Range)
	}
	diags := checkPluginBody(body)
	inst.state.learn(schema)
	known := map[string]bool{}
	out := map[string]json.RawMessage{}
	for _, attr := range schema.GetAttributes() {
		if known[attr.GetName()] || !hclsyntax.ValidIdentifier(attr.GetName()) {
			diags = append(diags, badSchema(inst, attr, "the name is not an identifier of its own"))
			continue
		}
		known[attr.GetName()] = true
		raw, d := decodePluginAttribute(inst, body, attr, ctx)
		if attr.GetSensitive() {
			hideSnippets(d)
		}
		diags = append(diags, d...)
		out[attr.GetName()] = raw
	}
	names := sortedKeys(known)
	for _, attr := range inOrder(body.Attributes) {
		if !known[attr.Name] {
			diags = append(diags, errorAt(attr.NameRange, "Unknown attribute", "%s", sentence(fmt.Sprintf("The plugin of %s has no attribute %s%s", inst.Ref(), quote(attr.Name), didYouMean(attr.Name, names)))))
		}
	}
	if diags.HasErrors() {
		return nil, sorted(diags)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, append(diags, errorAt(inst.Range, "Configuration cannot be written as JSON", "%s: %s.", inst.Ref(), err))
	}
	return bytes.TrimSpace(buf.Bytes()), sorted(diags)
}

// decodePluginAttribute is one attribute as JSON.
func decodePluginAttribute(inst Instance, body *hclsyntax.Body, attr *pluginv1.Attribute, ctx *hcl.EvalContext) (json.RawMessage, hcl.Diagnostics) {
	ty, defaults, err := schemaType(attr.GetType())
	if err != nil {
		return nil, hcl.Diagnostics{badSchema(inst, attr, err.Error())}
	}
	null := json.RawMessage("null")
	at := body.MissingItemRange()
	why := ""
	if src := body.Attributes[attr.GetName()]; src != nil {
		val, marks, diags := pluginValue(attr, src.Expr, ty, defaults, ctx)
		if diags.HasErrors() {
			return nil, diags
		}
		if !val.IsNull() {
			if attr.GetSensitive() {
				inst.state.remember(val)
				if _, secret := marks[sensitive]; !secret && isLiteral(src.Expr) {
					w := warningAt(src.NameRange, "Secret in the configuration", "The attribute %q is secret. Keep its value out of this file: secret(\"file:…\") or secret(\"env:…\").", attr.GetName())
					diags = append(diags, w)
				}
			}
			diags = append(diags, validateValue(attr, src.Expr, val)...)
			if diags.HasErrors() {
				return nil, diags
			}
			raw, err := marshalValue(val, ty)
			if err != nil {
				return nil, append(diags, errorAt(src.Expr.Range(), "Bad value", "The attribute %q cannot be written as JSON.", attr.GetName()))
			}
			return raw, diags
		}
		if _, lenient := marks[unreadable]; lenient {
			return null, hcl.Diagnostics{warningAt(src.Expr.Range(), "Secret not looked at",
				"The attribute %q: its secret cannot be read by this user or from this environment, so that it is not checked. The host has to be able to.", attr.GetName())}
		}
		at, why = src.Expr.Range(), " It is set to null here; an env() whose variable is not set and that has no default is null."
	}
	if attr.GetRequired() {
		return nil, hcl.Diagnostics{errorAt(at, "Missing attribute", "%s needs the attribute %q.%s %s", inst.Ref(), attr.GetName(), why, sentence(clean(attr.GetDescription())))}
	}
	if attr.GetDefaultJson() == "" {
		return null, nil
	}
	val, err := ctyjson.Unmarshal([]byte(attr.GetDefaultJson()), concrete(ty, attr.GetDefaultJson()))
	if err != nil {
		return nil, hcl.Diagnostics{badSchema(inst, attr, "its default is not of its type")}
	}
	raw, err := marshalValue(val, ty)
	if err != nil {
		return nil, hcl.Diagnostics{badSchema(inst, attr, "its default is not of its type")}
	}
	return raw, nil
}

// pluginValue evaluates and converts; the marks say whether a secret is in it.
func pluginValue(attr *pluginv1.Attribute, expr hclsyntax.Expression, ty cty.Type, defaults *typeexpr.Defaults, ctx *hcl.EvalContext) (cty.Value, cty.ValueMarks, hcl.Diagnostics) {
	val, diags := evalExpr(expr, ctx)
	if diags.HasErrors() {
		return cty.NilVal, nil, diags
	}
	val, marks := val.UnmarkDeep()
	if _, secret := marks[sensitive]; secret && !attr.GetSensitive() {
		return cty.NilVal, nil, hcl.Diagnostics{errorAt(expr.Range(), "Secret not allowed here",
			"The attribute %q is not secret for its plugin: its value is shown in status and logs.", attr.GetName())}
	}
	if val.IsNull() {
		return val, marks, nil
	}
	if path, name, known := extraKey(val, ty, nil); name != "" {
		rng, _ := rangeAt(expr, append(path, cty.GetAttrStep{Name: name}))
		return cty.NilVal, nil, hcl.Diagnostics{errorAt(rng, "Unknown attribute", "%s", sentence(fmt.Sprintf("The objects of %q have no attribute %s%s", attr.GetName(), quote(name), didYouMean(name, known))))}
	}
	if defaults != nil {
		val = defaults.Apply(val)
	}
	conv, err := convert.Convert(val, ty)
	if err != nil {
		return cty.NilVal, nil, hcl.Diagnostics{errorAt(mismatch(expr, val, ty), "Wrong type", "The attribute %q is a %s: %s.", attr.GetName(), typeexpr.TypeString(ty), strings.TrimSuffix(err.Error(), "."))}
	}
	if !checkMagnitude(conv) {
		return cty.NilVal, nil, hcl.Diagnostics{errorAt(expr.Range(), "Number out of range", "This value holds a number that is too large or too small.")}
	}
	return conv, marks, nil
}

// isLiteral says that an expression reads nothing from the outside.
func isLiteral(expr hclsyntax.Expression) bool {
	literal := true
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if _, ok := n.(*hclsyntax.FunctionCallExpr); ok {
			literal = false
		}
		return nil
	})
	return literal
}

func badSchema(inst Instance, attr *pluginv1.Attribute, why string) *hcl.Diagnostic {
	return errorAt(inst.Range, "Bad plugin schema", "The plugin of %s describes its attribute %s wrongly: %s. Tell its author.", inst.Ref(), quote(clean(attr.GetName())), why)
}
