package config

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// reference names a block: isolation.docker.container or gateway.anthropic.
type reference struct {
	name string // with dots
	rng  hcl.Range
}

// refForm is how a reference to a kind of block is written.
func refForm(kind string) string {
	if kind == "gateway" {
		return "gateway.NAME"
	}
	return kind + ".DRIVER.NAME"
}

// ref is one reference to a block of a kind, without quotes.
func ref(kind string) *valueType {
	return &valueType{name: "reference " + refForm(kind), expr: func(e hclsyntax.Expression) (any, hcl.Diagnostics) {
		return parseRef(e, kind)
	}}
}

// refs is a list of references.
func refs(kind string) *valueType {
	return &valueType{name: "list of references " + refForm(kind), expr: func(e hclsyntax.Expression) (any, hcl.Diagnostics) {
		list, ok := e.(*hclsyntax.TupleConsExpr)
		if !ok {
			return nil, hcl.Diagnostics{errorAt(e.Range(), "Wrong type", "This is a list of references: write [%s].", refForm(kind))}
		}
		out := []reference{}
		seen := map[string]bool{}
		for _, item := range list.Exprs {
			r, diags := parseRef(item, kind)
			if diags.HasErrors() {
				return nil, diags
			}
			ref := r.(reference)
			if seen[ref.name] {
				return nil, hcl.Diagnostics{errorAt(ref.rng, "Reference given twice", "%s is in this list already.", ref.name)}
			}
			seen[ref.name] = true
			out = append(out, ref)
		}
		return out, nil
	}}
}

func parseRef(e hclsyntax.Expression, kind string) (any, hcl.Diagnostics) {
	form := refForm(kind)
	if text := quotedText(e); text != "" {
		return nil, hcl.Diagnostics{errorAt(e.Range(), "Reference in quotes", "A reference is written without quotes: %s.", form)}
	}
	traversal, diags := hcl.AbsTraversalForExpr(e)
	if diags.HasErrors() {
		return nil, hcl.Diagnostics{errorAt(e.Range(), "Not a reference", "This is a reference to a block: write %s.", form)}
	}
	parts := []string{traversal.RootName()}
	for _, step := range traversal[1:] {
		switch s := step.(type) {
		case hcl.TraverseAttr:
			parts = append(parts, s.Name)
		case hcl.TraverseIndex:
			if s.Key.Type().FriendlyName() == "string" && !s.Key.IsNull() {
				parts = append(parts, s.Key.AsString())
			} else {
				parts = append(parts, "")
			}
		}
	}
	if parts[0] != kind || len(parts) != strings.Count(form, ".")+1 {
		hint := ""
		if n := nearest(parts[0], []string{kind}); n != "" && parts[0] != kind {
			hint = fmt.Sprintf(" Did you mean %q?", strings.Join(append([]string{n}, parts[1:]...), "."))
		}
		return nil, hcl.Diagnostics{errorAt(e.Range(), "Wrong reference", "%s is not of the form %s.%s", quote(strings.Join(parts, ".")), form, hint)}
	}
	return reference{name: strings.Join(parts, "."), rng: e.Range()}, nil
}

func quotedText(e hclsyntax.Expression) string {
	if t, ok := e.(*hclsyntax.TemplateExpr); ok && len(t.Parts) > 0 {
		return "quoted"
	}
	return ""
}

// unknownRef is the error of a reference to a block that is not there.
func unknownRef(r reference, known []string) *hcl.Diagnostic {
	kind, _, _ := strings.Cut(r.name, ".")
	hint := didYouMean(r.name, known)
	switch {
	case hint != "":
	case len(known) == 0:
		hint = fmt.Sprintf(". The configuration has no %s block", kind)
	default:
		hint = ". There are: " + strings.Join(known, ", ")
	}
	return errorAt(r.rng, "Unknown reference", "%s", sentence(fmt.Sprintf("There is no block for %s%s", r.name, hint)))
}
