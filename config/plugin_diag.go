package config

import (
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// MapDiagnostics turns a plugin's findings into diagnostics with file, line and
// column, as deep as the path leads into what is written out in the config
// block. A plugin's text is not trusted: control characters, lengths and the
// values of secrets are cut.
func MapDiagnostics(inst Instance, findings []*pluginv1.Diagnostic) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, f := range findings {
		d := errorAt(inst.Range, inst.Ref()+": "+inst.redact(f.GetSummary()), "%s", inst.redact(f.GetDetail()))
		if f.GetSeverity() == pluginv1.Severity_SEVERITY_WARNING {
			d.Severity = hcl.DiagWarning
		}
		rng, sensitive := inst.locate(f.GetPath())
		d.Subject = &rng
		if sensitive {
			hideSnippets(hcl.Diagnostics{d})
		}
		diags = append(diags, d)
	}
	return sorted(diags)
}

// locate is where a path of a plugin's finding lies in the source.
func (i Instance) locate(path []*pluginv1.PathStep) (rng hcl.Range, sensitive bool) {
	body, ok := i.Body.(*hclsyntax.Body)
	if !ok || body == nil || len(path) == 0 {
		return i.Range, false
	}
	name := path[0].GetAttribute()
	if name == "" {
		name = path[0].GetKey()
	}
	sensitive = i.state.isSensitive(name)
	attr := body.Attributes[name]
	if attr == nil {
		return i.Range, sensitive
	}
	var steps cty.Path
	for _, s := range path[1:] {
		switch s := s.GetStep().(type) {
		case *pluginv1.PathStep_Attribute:
			steps = append(steps, cty.GetAttrStep{Name: s.Attribute})
		case *pluginv1.PathStep_Key:
			steps = append(steps, cty.IndexStep{Key: cty.StringVal(s.Key)})
		case *pluginv1.PathStep_Index:
			steps = append(steps, cty.IndexStep{Key: cty.NumberIntVal(s.Index)})
		}
	}
	rng, _ = rangeAt(attr.Expr, steps)
	return rng, sensitive
}

// learn keeps which attributes are sensitive.
func (s *instanceState) learn(schema *pluginv1.ConfigSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sensitive, s.secrets = map[string]bool{}, nil
	for _, a := range schema.GetAttributes() {
		s.sensitive[a.GetName()] = a.GetSensitive()
	}
}

// remember keeps the texts of a sensitive value, to cut them out of whatever
// the plugin says.
func (s *instanceState) remember(val cty.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = cty.Walk(val, func(_ cty.Path, v cty.Value) (bool, error) {
		if v.Type() == cty.String && v.IsKnown() && !v.IsNull() && len(v.AsString()) >= 4 {
			s.secrets = append(s.secrets, v.AsString())
		}
		return true, nil
	})
}

func (s *instanceState) isSensitive(name string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sensitive[name]
}

// redact is a plugin's text without control characters and secrets.
func (i Instance) redact(text string) string {
	if s := i.state; s != nil {
		s.mu.Lock()
		for _, secret := range s.secrets {
			text = strings.ReplaceAll(text, secret, "(sensitive)")
		}
		s.mu.Unlock()
	}
	return clean(text)
}

// clean makes a foreign text safe for a terminal and a log line.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if r := []rune(s); len(r) > 1000 {
		s = string(r[:1000]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}
