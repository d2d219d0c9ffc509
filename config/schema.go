package config

import (
	"encoding/json"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// JSONSchema describes the configuration as a JSON document with the same
// names: a block without labels is an object, one with labels is an object by
// label (two labels: by the first, then by the second). It is made from the
// specs that decode the language, so that it cannot say something else.
func JSONSchema() map[string]any {
	s := schemaOf(rootSpec(), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Airlock configuration"
	return s
}

func schemaOf(b *blockSpec, path string) map[string]any {
	out := map[string]any{"type": "object"}
	if b.doc != "" {
		out["description"] = b.doc
	}
	if b.plugin {
		return out // the plugin's own
	}
	out["additionalProperties"] = false
	properties, required := map[string]any{}, []string{}
	for i := range b.attrs {
		a := &b.attrs[i]
		properties[a.name] = attrSchema(a, path)
		if a.required {
			required = append(required, a.name)
		}
	}
	for _, c := range b.blocks {
		properties[c.name] = labelled(c, strings.TrimPrefix(path+"."+c.name, "."))
		if c.required {
			required = append(required, c.name)
		}
	}
	out["properties"] = properties
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// labelled wraps the schema of a block into one object for each label.
func labelled(b *blockSpec, path string) map[string]any {
	s := schemaOf(b, path)
	for i := len(b.labels) - 1; i >= 0; i-- {
		l := b.labels[i]
		s = map[string]any{"type": "object", "description": "By " + l.what + ".", "additionalProperties": s}
		if l.form != nil {
			s["propertyNames"] = map[string]any{"pattern": l.form.String()}
		}
	}
	return s
}

func attrSchema(a *attrSpec, path string) map[string]any {
	out := map[string]any{"description": a.doc, "x-airlock-type": a.typ.name, "x-airlock-reload": string(effectOf(path, a.name))}
	switch want := a.typ.want; {
	case a.typ.expr != nil && strings.HasPrefix(a.typ.name, "list"):
		out["type"], out["items"] = "array", map[string]any{"type": "string"}
	case a.typ.expr != nil:
		out["type"] = "string"
	default:
		for k, v := range typeSchema(want) {
			out[k] = v
		}
	}
	if words := enumWords(a.typ.name); words != nil {
		out["enum"] = words
	}
	var def any
	if a.def != "" && json.Unmarshal([]byte(a.def), &def) == nil {
		out["default"] = def
	}
	if a.sensitive {
		out["writeOnly"] = true
	}
	return out
}

// enumWords are the values of a type that is named by them: "a" or "b".
func enumWords(name string) []string {
	if !strings.HasPrefix(name, `"`) {
		return nil
	}
	var words []string
	for _, w := range strings.Split(name, " or ") {
		words = append(words, strings.Trim(w, `"`))
	}
	return words
}

func typeSchema(t cty.Type) map[string]any {
	switch {
	case t == cty.String:
		return map[string]any{"type": "string"}
	case t == cty.Number:
		return map[string]any{"type": "number"}
	case t == cty.Bool:
		return map[string]any{"type": "boolean"}
	case t.IsListType():
		return map[string]any{"type": "array", "items": typeSchema(t.ElementType())}
	default:
		return map[string]any{"type": "object"}
	}
}
