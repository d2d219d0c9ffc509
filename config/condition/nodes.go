package condition

import (
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// The nodes embed the expression that they stand for: its place, its variables,
// and the method that makes a type an hclsyntax.Expression. Value is theirs.

// variable is a reference such as args.amount.
type variable struct {
	*hclsyntax.ScopeTraversalExpr
	text string
}

func (n variable) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	for c := ctx; c != nil; c = c.Parent() {
		if val, ok := c.Variables[n.Traversal.RootName()]; ok {
			if val, ok = walk(val, n.Traversal[1:]); ok {
				return val, nil
			}
			break
		}
	}
	return bad(n.Range(), "%s is missing", n.text)
}

// relative is a reference that starts from an expression's value.
type relative struct {
	*hclsyntax.RelativeTraversalExpr
	src  hclsyntax.Expression
	text string
}

func (n relative) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	src, diags := n.src.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	val, ok := walk(src, n.Traversal)
	if !ok {
		return bad(n.Range(), "%s is missing", n.text)
	}
	return val, nil
}

// walk follows a reference: names into objects, numbers into lists.
func walk(val cty.Value, steps hcl.Traversal) (cty.Value, bool) {
	for _, step := range steps {
		var key cty.Value
		switch s := step.(type) {
		case hcl.TraverseAttr:
			key = cty.StringVal(s.Name)
		case hcl.TraverseIndex:
			key = s.Key
		default:
			return val, false
		}
		var ok bool
		if val, ok = element(val, key); !ok {
			return val, false
		}
	}
	return val, true
}

// element is a member of an object by a string, or of a list by a number.
func element(coll, key cty.Value) (cty.Value, bool) {
	if coll.IsNull() || key.IsNull() || !coll.IsKnown() || !key.IsKnown() {
		return cty.DynamicVal, false
	}
	t := coll.Type()
	switch {
	case key.Type() == cty.String && t.IsObjectType():
		if !t.HasAttribute(key.AsString()) {
			return cty.DynamicVal, false
		}
		return coll.GetAttr(key.AsString()), true
	case key.Type() == cty.String && t.IsMapType(), key.Type() == cty.Number && (t.IsTupleType() || t.IsListType()):
		if has := coll.HasIndex(key); !has.IsKnown() || has.False() {
			return cty.DynamicVal, false
		}
		return coll.Index(key), true
	}
	return cty.DynamicVal, false
}

// strict evaluates an operand and refuses anything but the type.
func strict(expr hclsyntax.Expression, ctx *hcl.EvalContext, typ cty.Type) (cty.Value, hcl.Diagnostics) {
	val, diags := expr.Value(ctx)
	if diags.HasErrors() && !(typ == cty.Bool && isBool(val)) {
		return cty.DynamicVal, diags
	}
	if val.IsNull() || val.Type() != typ || !val.IsKnown() {
		return bad(expr.Range(), "%s where a %s is needed", describe(val), typ.FriendlyName())
	}
	return val, diags
}

func isBool(v cty.Value) bool {
	return v != cty.NilVal && v.Type() == cty.Bool && v.IsKnown() && !v.IsNull()
}

// logic is && and ||. The right side is not evaluated when the left one
// decides. A side that cannot be evaluated stays an error even where the other
// one decides; the value is then the one that is decided.
type logic struct {
	hclsyntax.Expression
	or   bool
	l, r hclsyntax.Expression
}

func (n logic) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	decisive := cty.BoolVal(n.or)
	l, diags := strict(n.l, ctx, cty.Bool)
	if isBool(l) && l.True() == n.or {
		return decisive, diags
	}
	r, more := strict(n.r, ctx, cty.Bool)
	diags = append(diags, more...)
	switch {
	case isBool(r) && r.True() == n.or:
		return decisive, diags
	case isBool(l) && isBool(r):
		return cty.BoolVal(!n.or), diags
	}
	return cty.DynamicVal, diags
}

type not struct {
	hclsyntax.Expression
	v hclsyntax.Expression
}

func (n not) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := strict(n.v, ctx, cty.Bool)
	if !isBool(v) {
		return cty.DynamicVal, diags
	}
	return cty.BoolVal(!v.True()), diags
}

// equal is == and != over two numbers, strings or bools, or with a null that is
// written out.
type equal struct {
	hclsyntax.Expression
	negate       bool
	l, r         hclsyntax.Expression
	nullL, nullR bool
}

func (n equal) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	l, diags := n.l.Value(ctx)
	r, more := n.r.Value(ctx)
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if n.nullL || n.nullR {
		return cty.BoolVal((l.IsNull() && r.IsNull()) != n.negate), nil
	}
	same, ok := sameValue(l, r)
	if !ok {
		return bad(n.Range(), "%s is compared with %s; numbers, strings and bools are compared with their like", describe(l), describe(r))
	}
	return cty.BoolVal(same != n.negate), nil
}

// sameValue compares two values of one primitive type; ok is false for others.
func sameValue(l, r cty.Value) (same, ok bool) {
	if l.IsNull() || r.IsNull() || !l.IsKnown() || !r.IsKnown() || l.Type() != r.Type() {
		return false, false
	}
	switch l.Type() {
	case cty.Number:
		return l.AsBigFloat().Cmp(r.AsBigFloat()) == 0, true
	case cty.String:
		return l.AsString() == r.AsString(), true
	case cty.Bool:
		return l.True() == r.True(), true
	}
	return false, false
}

// order is <, <=, > and >= over numbers.
type order struct {
	hclsyntax.Expression
	op   string
	l, r hclsyntax.Expression
}

func (n order) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	l, diags := strict(n.l, ctx, cty.Number)
	r, more := strict(n.r, ctx, cty.Number)
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	cmp := l.AsBigFloat().Cmp(r.AsBigFloat())
	return cty.BoolVal(n.op[0] == '>' && cmp > 0 || n.op[0] == '<' && cmp < 0 || len(n.op) == 2 && cmp == 0), nil
}

// arithmetic is + - * / % and the sign over numbers.
type arithmetic struct {
	hclsyntax.Expression
	op       *hclsyntax.Operation
	operands []hclsyntax.Expression
}

func (n arithmetic) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	vals := make([]cty.Value, len(n.operands))
	var diags hcl.Diagnostics
	for i, o := range n.operands {
		v, more := strict(o, ctx, cty.Number)
		vals[i], diags = v, append(diags, more...)
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	out, err := n.op.Impl.Call(vals)
	if err != nil || out.AsBigFloat().IsInf() {
		return bad(n.Range(), "this has no result")
	}
	if exp := out.AsBigFloat().MantExp(nil); exp > 8*maxExponent || exp < -8*maxExponent {
		return bad(n.Range(), "this result is out of range")
	}
	return out, nil
}

// choice is c ? a : b; only the chosen side is evaluated.
type choice struct {
	hclsyntax.Expression
	cond, yes, no hclsyntax.Expression
}

func (n choice) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	c, diags := strict(n.cond, ctx, cty.Bool)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if c.True() {
		return n.yes.Value(ctx)
	}
	return n.no.Value(ctx)
}

// match is matches(pattern, string).
type match struct {
	hclsyntax.Expression
	re *regexp.Regexp
	v  hclsyntax.Expression
}

func (n match) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := strict(n.v, ctx, cty.String)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	return cty.BoolVal(n.re.MatchString(v.AsString())), nil
}
