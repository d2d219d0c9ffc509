package config

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// evaluate is an attribute's Go value; isNull says that it is null instead.
func (d *decoder) evaluate(spec *attrSpec, expr hclsyntax.Expression) (v any, isNull bool, diags hcl.Diagnostics) {
	if spec.typ.expr != nil {
		if lit, ok := expr.(*hclsyntax.LiteralValueExpr); ok && lit.Val.IsNull() {
			return nil, true, nil
		}
		v, diags = spec.typ.expr(expr)
		return v, false, diags
	}
	val, diags := evalExpr(expr, d.ctx)
	if diags.HasErrors() {
		return nil, false, diags
	}
	val, marks := val.UnmarkDeep()
	if _, secret := marks[sensitive]; secret && !spec.sensitive {
		return nil, false, hcl.Diagnostics{errorAt(expr.Range(), "Secret not allowed here",
			"The attribute %q is not secret: its value is shown in status and logs. Use env() or write it out.", spec.name)}
	}
	if val.IsNull() {
		return nil, true, nil
	}
	val, err := convert.Convert(val, spec.typ.want)
	if err != nil {
		return nil, false, hcl.Diagnostics{errorAt(rangeOf(expr, err), "Wrong type", "%s", sentence(fmt.Sprintf("The attribute %q is a %s: %s", spec.name, spec.typ.name, err)))}
	}
	v, err = spec.typ.parse(val)
	if err != nil {
		return nil, false, hcl.Diagnostics{errorAt(rangeOf(expr, err), "Bad value", "%s", sentence(fmt.Sprintf("The attribute %q: %s", spec.name, err)))}
	}
	return v, false, nil
}

// evalExpr is expr.Value within the limits.
func evalExpr(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if diags := checkExpr(expr); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if word := bareWord(expr); word != "" {
		return cty.DynamicVal, hcl.Diagnostics{errorAt(expr.Range(), "Text without quotes", "There are no variables here. If %s is the value, write it in quotes: %q.", word, word)}
	}
	val, diags := expr.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if !val.IsWhollyKnown() || !checkMagnitude(val) {
		diags = append(diags, errorAt(expr.Range(), "Number out of range", "This value holds a number that is too large or too small."))
	}
	return val, diags
}

// bareWord is the text of an expression that is a plain name, such as govern.
func bareWord(expr hclsyntax.Expression) string {
	if t, ok := expr.(*hclsyntax.ScopeTraversalExpr); ok && len(t.Traversal) == 1 {
		return t.Traversal.RootName()
	}
	return ""
}

// rangeOf is the part of expr that an error's path leads to.
func rangeOf(expr hclsyntax.Expression, err error) hcl.Range {
	var perr cty.PathError
	if !errors.As(err, &perr) {
		return expr.Range()
	}
	rng, _ := rangeAt(expr, perr.Path)
	return rng
}

// rangeAt follows a path into the source as far as it is written out there; ok
// says that all of it was found.
func rangeAt(expr hclsyntax.Expression, path cty.Path) (rng hcl.Range, ok bool) {
	for _, step := range path {
		next := stepInto(expr, step)
		if next == nil {
			return expr.Range(), false
		}
		expr = next
	}
	return expr.Range(), true
}

func stepInto(expr hclsyntax.Expression, step cty.PathStep) hclsyntax.Expression {
	if p, ok := expr.(*hclsyntax.ParenthesesExpr); ok {
		return stepInto(p.Expression, step)
	}
	var key cty.Value
	switch s := step.(type) {
	case cty.GetAttrStep:
		key = cty.StringVal(s.Name)
	case cty.IndexStep:
		key = s.Key
	}
	switch e := expr.(type) {
	case *hclsyntax.TupleConsExpr:
		if key.Type() == cty.Number && key.IsKnown() && !key.IsNull() {
			if i, _ := key.AsBigFloat().Int64(); i >= 0 && i < int64(len(e.Exprs)) {
				return e.Exprs[i]
			}
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			k, diags := item.KeyExpr.Value(nil)
			if !diags.HasErrors() && k.Type() == cty.String && k.IsKnown() && !k.IsNull() && key.Type() == cty.String && k.RawEquals(key) {
				return item.ValueExpr
			}
		}
	}
	return nil
}
