package condition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Variables are the names that a condition may read.
func Variables() []string { return []string{"tool", "args", "mission", "agent", "intent", "history"} }

// attributes are the fixed attributes of a variable; nil: any, or none.
func attributes(variable string) []string {
	switch variable {
	case "mission":
		return []string{"id", "agent", "runtime", "objective"}
	case "intent":
		return []string{"id", "goal", "requested_by", "constraints", "authority", "expires", "metadata"}
	}
	return nil
}

// compiled is a rebuilt expression, its canonical text, and its type as far as
// it is known before any value is (else DynamicPseudoType).
type compiled struct {
	expr hclsyntax.Expression
	text string
	typ  cty.Type
}

type compiler struct {
	uses  map[string]bool
	args  []string
	all   bool
	local []string // variables of the enclosing for expression
	diags hcl.Diagnostics
}

func (c *compiler) fail(at hcl.Range, summary, format string, args ...any) {
	c.diags = append(c.diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at.Ptr()})
}

// fits says whether a type that is known so far can be the wanted one.
func fits(got, want cty.Type) bool {
	return got == cty.DynamicPseudoType || want == cty.DynamicPseudoType || got == want
}

func (c *compiler) compile(expr hclsyntax.Expression) compiled {
	dyn := cty.DynamicPseudoType
	switch e := expr.(type) {
	case *hclsyntax.ParenthesesExpr:
		return c.compile(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return c.compile(e.Wrapped)
	case *hclsyntax.LiteralValueExpr:
		return c.literal(e)
	case *hclsyntax.ScopeTraversalExpr:
		return c.traversal(e)
	case *hclsyntax.RelativeTraversalExpr:
		src := c.compile(e.Source)
		text := src.text + steps(e.Traversal)
		return compiled{relative{e, src.expr, text}, text, dyn}
	case *hclsyntax.IndexExpr:
		coll, key := c.compile(e.Collection), c.compile(e.Key)
		return compiled{index{e, coll.expr, key.expr}, coll.text + "[" + key.text + "]", dyn}
	case *hclsyntax.FunctionCallExpr:
		return c.call(e)
	case *hclsyntax.BinaryOpExpr:
		return c.binary(e)
	case *hclsyntax.UnaryOpExpr:
		return c.unary(e)
	case *hclsyntax.ConditionalExpr:
		p, yes, no := c.want(e.Condition, cty.Bool), c.compile(e.TrueResult), c.compile(e.FalseResult)
		typ := yes.typ
		if no.typ != typ {
			typ = dyn
		}
		return compiled{choice{e, p.expr, yes.expr, no.expr}, "(" + p.text + " ? " + yes.text + " : " + no.text + ")", typ}
	case *hclsyntax.TupleConsExpr:
		out, texts := &hclsyntax.TupleConsExpr{SrcRange: e.SrcRange, OpenRange: e.OpenRange}, []string{}
		for _, item := range e.Exprs {
			part := c.compile(item)
			out.Exprs, texts = append(out.Exprs, part.expr), append(texts, part.text)
		}
		return compiled{out, "[" + strings.Join(texts, ", ") + "]", dyn}
	case *hclsyntax.ObjectConsExpr:
		return c.object(e)
	case *hclsyntax.TemplateExpr:
		return c.template(e)
	case *hclsyntax.ForExpr:
		return c.loop(e)
	case *hclsyntax.SplatExpr:
		src := c.compile(e.Source)
		out := &hclsyntax.SplatExpr{Source: sequence{e.Source, src.expr}, Each: e.Each, Item: e.Item, SrcRange: e.SrcRange, MarkerRange: e.MarkerRange}
		each := ""
		if t, ok := e.Each.(*hclsyntax.RelativeTraversalExpr); ok {
			each = steps(t.Traversal)
		} else if _, plain := e.Each.(*hclsyntax.AnonSymbolExpr); !plain {
			c.fail(e.Range(), "Not available here", "Only attributes and indices may follow a splat in a condition.")
		}
		return compiled{out, src.text + "[*]" + each, dyn}
	}
	c.fail(expr.Range(), "Not available here", "Conditions have no expression of this kind.")
	return compiled{expr, "", dyn}
}

// want compiles an operand of a type.
func (c *compiler) want(expr hclsyntax.Expression, typ cty.Type) compiled {
	out := c.compile(expr)
	if !fits(out.typ, typ) {
		c.fail(expr.Range(), "Wrong type", "This is a %s, and a %s is needed. Nothing is converted.", out.typ.FriendlyName(), typ.FriendlyName())
	}
	return out
}

func (c *compiler) literal(e *hclsyntax.LiteralValueExpr) compiled {
	v := e.Val
	switch {
	case v.IsNull():
		return compiled{e, "null", cty.DynamicPseudoType}
	case v.Type() == cty.Number:
		f := v.AsBigFloat()
		if exp := f.MantExp(nil); e.SrcRange.End.Byte-e.SrcRange.Start.Byte > MaxDigits || exp > 3*maxExponent || exp < -3*maxExponent {
			c.fail(e.Range(), "Number out of range", "A number has at most %d characters here and an exponent of at most %d.", MaxDigits, maxExponent)
		}
		return compiled{e, f.Text('g', -1), cty.Number}
	case v.Type() == cty.String:
		return compiled{e, quote(v.AsString()), cty.String}
	case v.Type() == cty.Bool:
		return compiled{e, fmt.Sprint(v.True()), cty.Bool}
	}
	c.fail(e.Range(), "Not available here", "Conditions have no literal of this kind.")
	return compiled{e, "", cty.DynamicPseudoType}
}

func (c *compiler) traversal(e *hclsyntax.ScopeTraversalExpr) compiled {
	root, typ := e.Traversal.RootName(), cty.DynamicPseudoType
	out := compiled{variable{e, root + steps(e.Traversal[1:])}, root + steps(e.Traversal[1:]), typ}
	if slices.Contains(c.local, root) {
		return out
	}
	if !slices.Contains(Variables(), root) {
		c.fail(e.Range(), "Unknown variable", "Conditions have no variable %q%s. There are: %s.", root, didYouMean(root, Variables()), strings.Join(Variables(), ", "))
		return out
	}
	c.uses[root] = true
	if root == "args" {
		if name, ok := firstName(e.Traversal); ok {
			c.args = append(c.args, cty.NormalizeString(name))
		} else {
			c.all = true
		}
	}
	known := attributes(root)
	switch {
	case root == "tool" || root == "agent":
		out.typ = cty.String
		if len(e.Traversal) > 1 {
			c.fail(e.Range(), "Wrong type", "%s is a string: the %s's name. It has no attributes.", root, root)
		}
	case len(known) > 0 && len(e.Traversal) > 1:
		name, _ := firstName(e.Traversal)
		if !slices.Contains(known, name) {
			c.fail(e.Range(), "Unknown attribute", "%s has no attribute %q%s. It has: %s.", root, name, didYouMean(name, known), strings.Join(known, ", "))
		} else if root == "mission" && len(e.Traversal) == 2 {
			out.typ = cty.String
		}
	}
	return out
}

// firstName is the attribute that a reference goes to first.
func firstName(t hcl.Traversal) (string, bool) {
	if len(t) < 2 {
		return "", false
	}
	switch step := t[1].(type) {
	case hcl.TraverseAttr:
		return step.Name, true
	case hcl.TraverseIndex:
		if step.Key.Type() == cty.String {
			return step.Key.AsString(), true
		}
	}
	return "", false
}

// steps is a traversal's canonical text.
func steps(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch s := step.(type) {
		case hcl.TraverseAttr:
			b.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			switch {
			case s.Key.Type() == cty.Number:
				b.WriteString("[" + s.Key.AsBigFloat().Text('g', -1) + "]")
			case hclsyntax.ValidIdentifier(s.Key.AsString()):
				b.WriteString("." + s.Key.AsString())
			default:
				b.WriteString("[" + quote(s.Key.AsString()) + "]")
			}
		}
	}
	return b.String()
}
