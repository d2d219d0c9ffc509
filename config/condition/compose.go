package condition

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func (c *compiler) object(e *hclsyntax.ObjectConsExpr) compiled {
	out, texts := &hclsyntax.ObjectConsExpr{SrcRange: e.SrcRange, OpenRange: e.OpenRange}, []string{}
	for _, item := range e.Items {
		key, text := item.KeyExpr, ""
		if k, ok := key.(*hclsyntax.ObjectConsKeyExpr); ok && !k.ForceNonLiteral {
			if v, diags := k.Value(nil); !diags.HasErrors() && v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
				text = quote(v.AsString())
			}
		}
		if text == "" {
			if k, ok := key.(*hclsyntax.ObjectConsKeyExpr); ok {
				key = k.Wrapped
			}
			part := c.want(key, cty.String)
			key, text = part.expr, "("+part.text+")"
		}
		val := c.compile(item.ValueExpr)
		out.Items = append(out.Items, hclsyntax.ObjectConsItem{KeyExpr: key, ValueExpr: val.expr})
		texts = append(texts, text+" = "+val.text)
	}
	return compiled{out, "{" + strings.Join(texts, ", ") + "}", cty.DynamicPseudoType}
}

func (c *compiler) template(e *hclsyntax.TemplateExpr) compiled {
	if e.IsStringLiteral() {
		if v, diags := e.Value(nil); !diags.HasErrors() {
			return compiled{&hclsyntax.LiteralValueExpr{Val: v, SrcRange: e.SrcRange}, quote(v.AsString()), cty.String}
		}
	}
	out, text := &hclsyntax.TemplateExpr{SrcRange: e.SrcRange}, ""
	for _, p := range e.Parts {
		part := c.compile(p)
		out.Parts = append(out.Parts, part.expr)
		if part.typ == cty.String && strings.HasPrefix(part.text, `"`) {
			text += part.text[1 : len(part.text)-1]
		} else {
			text += "${" + part.text + "}"
		}
	}
	return compiled{out, `"` + text + `"`, cty.String}
}

// loop allows one for expression, so that the time of a decision grows with the
// size of a call and not with a power of it.
func (c *compiler) loop(e *hclsyntax.ForExpr) compiled {
	if len(c.local) > 0 {
		c.fail(e.Range(), "Not available here", "A for expression cannot lie inside another one in a condition.")
		return compiled{e, "", cty.DynamicPseudoType}
	}
	coll := c.compile(e.CollExpr)
	names := []string{}
	for _, n := range []string{e.KeyVar, e.ValVar} {
		if n == "" {
			continue
		}
		if slices.Contains(Variables(), n) {
			c.fail(e.Range(), "Name taken", "%q is a variable of conditions: give the for expression another name.", n)
		}
		names = append(names, n)
	}
	if e.Group {
		c.fail(e.Range(), "Not available here", "A for expression cannot group its results in a condition.")
	}
	c.local = names
	defer func() { c.local = nil }()
	out, text := loop{ForExpr: e, coll: coll.expr}, "for "+strings.Join(names, ", ")+" in "+coll.text+": "
	if e.KeyExpr != nil {
		key := c.want(e.KeyExpr, cty.String)
		out.key, text = key.expr, text+key.text+" => "
	}
	val := c.compile(e.ValExpr)
	out.val, text = val.expr, text+val.text
	if e.CondExpr != nil {
		cond := c.want(e.CondExpr, cty.Bool)
		out.cond, text = cond.expr, text+" if "+cond.text
	}
	if e.KeyExpr != nil {
		return compiled{out, "{" + text + "}", cty.DynamicPseudoType}
	}
	return compiled{out, "[" + text + "]", cty.DynamicPseudoType}
}
