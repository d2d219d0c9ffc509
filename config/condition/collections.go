package condition

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// index is collection[key] with a key of the collection's own type.
type index struct {
	hclsyntax.Expression
	coll, key hclsyntax.Expression
}

func (n index) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	coll, diags := n.coll.Value(ctx)
	key, more := n.key.Value(ctx)
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	want := cty.Number
	if t := coll.Type(); t.IsObjectType() || t.IsMapType() {
		want = cty.String
	} else if !isSequence(coll) {
		return bad(n.Range(), "%s has no elements", describe(coll))
	}
	if key.IsNull() || key.Type() != want {
		return bad(n.Range(), "%s cannot be an index of %s", describe(key), describe(coll))
	}
	val, ok := element(coll, key)
	if !ok {
		return bad(n.Range(), "there is no such element")
	}
	return val, nil
}

func isSequence(v cty.Value) bool {
	t := v.Type()
	return !v.IsNull() && (t.IsTupleType() || t.IsListType() || t.IsSetType())
}

// sequence holds the source of a splat to a list: HCL takes anything.
type sequence struct {
	hclsyntax.Expression
	v hclsyntax.Expression
}

func (n sequence) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := n.v.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if !isSequence(v) {
		return bad(n.Range(), "%s where a list is needed", describe(v))
	}
	return v, nil
}

// loop is a for expression: a tuple, or an object when it has a key.
type loop struct {
	*hclsyntax.ForExpr
	coll, key, val, cond hclsyntax.Expression // key and cond may be nil
}

func (n loop) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	coll, diags := n.coll.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if !isSequence(coll) && (coll.IsNull() || !coll.Type().IsObjectType() && !coll.Type().IsMapType()) {
		return bad(n.coll.Range(), "%s where a list or an object is needed", describe(coll))
	}
	if coll.LengthInt() > maxElements {
		return bad(n.coll.Range(), "this has more than %d elements", maxElements)
	}
	list, attrs := []cty.Value{}, map[string]cty.Value{}
	child := ctx.NewChild()
	for it := coll.ElementIterator(); it.Next(); {
		k, v := it.Element()
		child.Variables = map[string]cty.Value{n.ValVar: v}
		if n.KeyVar != "" {
			child.Variables[n.KeyVar] = k
		}
		if n.cond != nil {
			c, diags := strict(n.cond, child, cty.Bool)
			if diags.HasErrors() {
				return cty.DynamicVal, diags
			}
			if c.False() {
				continue
			}
		}
		val, diags := n.val.Value(child)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		list = append(list, val)
		if n.key == nil {
			continue
		}
		key, diags := strict(n.key, child, cty.String)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		if _, dup := attrs[key.AsString()]; dup {
			return bad(n.key.Range(), "the same key comes twice")
		}
		attrs[key.AsString()] = val
	}
	if n.key != nil {
		return cty.ObjectVal(attrs), nil
	}
	return cty.TupleVal(list), nil
}

// call is a function call whose arguments have the parameters' own types.
type call struct {
	hclsyntax.Expression
	name   string
	fn     function.Function
	args   []hclsyntax.Expression
	params []function.Parameter
}

func (n call) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	vals := make([]cty.Value, len(n.args))
	for i, arg := range n.args {
		v, diags := arg.Value(ctx)
		if diags.HasErrors() {
			return cty.DynamicVal, diags
		}
		if v.IsNull() && !n.params[i].AllowNull {
			return bad(arg.Range(), "null where %s needs a value", n.name)
		}
		if !v.IsWhollyKnown() {
			return bad(arg.Range(), "this cannot be evaluated")
		}
		fit, ok := conform(v, n.params[i].Type)
		if !ok {
			return bad(arg.Range(), "%s where %s needs a %s", describe(v), n.name, n.params[i].Type.FriendlyName())
		}
		vals[i] = fit
	}
	if swells(n.name, vals) {
		return bad(n.Range(), "the result of %s would be too long", n.name)
	}
	// The texts of functions' errors may quote their arguments.
	out, err := n.fn.Call(vals)
	if err != nil {
		return bad(n.Range(), "%s has no result for these arguments", n.name)
	}
	return out, nil
}

// conform is the value as the type, if it is of it already; a JSON array may be
// a list of its elements' one type.
func conform(v cty.Value, want cty.Type) (cty.Value, bool) {
	switch {
	case want == cty.DynamicPseudoType || v.Type().Equals(want):
		return v, true
	case !want.IsListType() || !v.Type().IsTupleType() && !v.Type().IsListType():
		return v, false
	}
	elem, members := want.ElementType(), v.AsValueSlice()
	for _, m := range members {
		if elem != cty.DynamicPseudoType && !m.Type().Equals(elem) || !m.Type().Equals(members[0].Type()) {
			return v, false
		}
	}
	// Not convert.Convert: its time grows with the square of the length.
	if len(members) == 0 {
		return cty.ListValEmpty(elem), true
	}
	return cty.ListVal(members), true
}
