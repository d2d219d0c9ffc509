package condition

import (
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// operator is how an operator is written; empty for one that HCL grew later.
func operator(op *hclsyntax.Operation) string {
	switch op {
	case hclsyntax.OpLogicalOr:
		return "||"
	case hclsyntax.OpLogicalAnd:
		return "&&"
	case hclsyntax.OpEqual:
		return "=="
	case hclsyntax.OpNotEqual:
		return "!="
	case hclsyntax.OpGreaterThan:
		return ">"
	case hclsyntax.OpGreaterThanOrEqual:
		return ">="
	case hclsyntax.OpLessThan:
		return "<"
	case hclsyntax.OpLessThanOrEqual:
		return "<="
	case hclsyntax.OpAdd:
		return "+"
	case hclsyntax.OpSubtract:
		return "-"
	case hclsyntax.OpMultiply:
		return "*"
	case hclsyntax.OpDivide:
		return "/"
	case hclsyntax.OpModulo:
		return "%"
	}
	return ""
}

func (c *compiler) binary(e *hclsyntax.BinaryOpExpr) compiled {
	op := operator(e.Op)
	var l, r compiled
	out := func(expr hclsyntax.Expression, typ cty.Type) compiled {
		return compiled{expr, "(" + l.text + " " + op + " " + r.text + ")", typ}
	}
	switch op {
	case "&&", "||":
		l, r = c.want(e.LHS, cty.Bool), c.want(e.RHS, cty.Bool)
		return out(logic{e, op == "||", l.expr, r.expr}, cty.Bool)
	case "==", "!=":
		l, r = c.compile(e.LHS), c.compile(e.RHS)
		if !fits(l.typ, r.typ) {
			c.fail(e.Range(), "Wrong type", "A %s is compared with a %s: that is always an error. Nothing is converted.", l.typ.FriendlyName(), r.typ.FriendlyName())
		}
		return out(equal{e, op == "!=", l.expr, r.expr, l.text == "null", r.text == "null"}, cty.Bool)
	case ">", ">=", "<", "<=":
		l, r = c.want(e.LHS, cty.Number), c.want(e.RHS, cty.Number)
		return out(order{e, op, l.expr, r.expr}, cty.Bool)
	case "":
		c.fail(e.Range(), "Not available here", "Conditions do not have this operator.")
		return compiled{e, "", cty.DynamicPseudoType}
	}
	l, r = c.want(e.LHS, cty.Number), c.want(e.RHS, cty.Number)
	return out(arithmetic{e, e.Op, []hclsyntax.Expression{l.expr, r.expr}}, cty.Number)
}

func (c *compiler) unary(e *hclsyntax.UnaryOpExpr) compiled {
	switch e.Op {
	case hclsyntax.OpLogicalNot:
		v := c.want(e.Val, cty.Bool)
		return compiled{not{e, v.expr}, "(!" + v.text + ")", cty.Bool}
	case hclsyntax.OpNegate:
		v := c.want(e.Val, cty.Number)
		return compiled{arithmetic{e, e.Op, []hclsyntax.Expression{v.expr}}, "(-" + v.text + ")", cty.Number}
	}
	c.fail(e.Range(), "Not available here", "Conditions do not have this operator.")
	return compiled{e, "", cty.DynamicPseudoType}
}
