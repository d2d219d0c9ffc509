package condition

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func (c *compiler) call(e *hclsyntax.FunctionCallExpr) compiled {
	dyn := cty.DynamicPseudoType
	if e.ExpandFinal {
		c.fail(e.Range(), "Not available here", "Arguments cannot be expanded with ... in a condition.")
	}
	if e.Name == "matches" {
		return c.matches(e)
	}
	fn, ok := functions()[e.Name]
	if !ok {
		c.fail(e.NameRange, "Unknown function", "Conditions have no function %q%s. There are: %s.", e.Name, didYouMean(e.Name, FunctionNames()), strings.Join(FunctionNames(), ", "))
		return compiled{e, "", dyn}
	}
	params, rest := fn.Params(), fn.VarParam()
	if len(e.Args) < len(params) || rest == nil && len(e.Args) > len(params) {
		c.fail(e.Range(), "Wrong number of arguments", "%s takes %d arguments, this call has %d.", e.Name, len(params), len(e.Args))
		return compiled{e, "", dyn}
	}
	node, texts := call{Expression: e, name: e.Name, fn: fn}, []string{}
	for i, arg := range e.Args {
		param := rest
		if i < len(params) {
			param = &params[i]
		}
		part := c.compile(arg)
		if param.Type.IsPrimitiveType() && !fits(part.typ, param.Type) {
			c.fail(arg.Range(), "Wrong type", "Argument %d of %s is a %s, and a %s is needed. Nothing is converted.", i+1, e.Name, part.typ.FriendlyName(), param.Type.FriendlyName())
		}
		node.args, node.params, texts = append(node.args, part.expr), append(node.params, *param), append(texts, part.text)
	}
	return compiled{node, e.Name + "(" + strings.Join(texts, ", ") + ")", results()[e.Name]}
}

// matches is compiled here, once: the pattern is the rule's and never the
// agent's.
func (c *compiler) matches(e *hclsyntax.FunctionCallExpr) compiled {
	if len(e.Args) != 2 {
		c.fail(e.Range(), "Wrong number of arguments", "matches takes a pattern and a string, this call has %d arguments.", len(e.Args))
		return compiled{e, "", cty.Bool}
	}
	pattern, subject := e.Args[0], c.want(e.Args[1], cty.String)
	if len(pattern.Variables()) > 0 {
		c.fail(pattern.Range(), "Pattern not constant", "The pattern of matches is written out; it cannot come from the call.")
		return compiled{e, "", cty.Bool}
	}
	val, diags := pattern.Value(nil)
	if diags.HasErrors() || val.IsNull() || !val.IsKnown() || val.Type() != cty.String {
		c.fail(pattern.Range(), "Wrong type", "The pattern of matches is a string.")
		return compiled{e, "", cty.Bool}
	}
	re, err := regexp.Compile("(?s)" + val.AsString())
	if err != nil {
		why := err.Error()
		var syntaxErr *syntax.Error
		if errors.As(err, &syntaxErr) {
			why = syntaxErr.Code.String()
		}
		c.fail(pattern.Range(), "Bad pattern", "This is not a regular expression in RE2 syntax: %s.", why)
		return compiled{e, "", cty.Bool}
	}
	return compiled{match{e, re, subject.expr}, "matches(" + quote(val.AsString()) + ", " + subject.text + ")", cty.Bool}
}
