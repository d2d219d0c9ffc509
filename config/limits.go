package config

import (
	"math/big"
	"regexp"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const (
	maxDepth     = 64   // brackets, braces and templates inside one another
	maxOperators = 1024 // operators, dots and indices in one expression
	maxExponent  = 1024 // of a number, to the base of 2
	maxCalls     = 256  // function calls in one expression
)

// checkText refuses what would make the parser recurse too deep, before the
// parser sees it. Operators count per expression because HCL builds one level
// of its tree for each.
func checkText(name string, text []byte) hcl.Diagnostics {
	if len(text) > maxFileBytes {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Configuration too large", Detail: name + " is larger than 1 MiB."}}
	}
	if !utf8.Valid(text) {
		return hcl.Diagnostics{errorAt(invalidAt(name, text), "Not UTF-8",
			"Configuration files are UTF-8. Convert this one, for example with iconv -t UTF-8.")}
	}
	tokens, diags := hclsyntax.LexConfig(text, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil // the parser says it better
	}
	type level struct {
		open hclsyntax.TokenType
		ops  int
	}
	stack := []level{{}}
	for _, t := range tokens {
		top := &stack[len(stack)-1]
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp,
			hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			top.ops++
			if len(stack) > maxDepth {
				return hcl.Diagnostics{errorAt(t.Range, "Nested too deeply", "At most %d brackets, blocks and templates may lie inside one another.", maxDepth)}
			}
			stack = append(stack, level{open: t.Type})
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd,
			hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
		case hclsyntax.TokenNewline, hclsyntax.TokenComment: // a line comment holds its newline
			if top.open != hclsyntax.TokenOParen && top.open != hclsyntax.TokenOBrack && top.open != hclsyntax.TokenTemplateInterp {
				top.ops = 0
			}
		case hclsyntax.TokenComma:
			top.ops = 0
		case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit,
			hclsyntax.TokenEqual, hclsyntax.TokenEOF:
		default:
			top.ops++
		}
		if top.ops > maxOperators {
			return hcl.Diagnostics{errorAt(t.Range, "Expression too long", "An expression may have at most %d operators.", maxOperators)}
		}
	}
	return nil
}

// invalidAt is the range of the first byte that is not UTF-8.
func invalidAt(name string, text []byte) hcl.Range {
	pos := hcl.InitialPos
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			break
		}
		pos.Byte += n
		pos.Column++
		if r == '\n' {
			pos.Line, pos.Column = pos.Line+1, 1
		}
		text = text[n:]
	}
	end := pos
	end.Byte, end.Column = end.Byte+1, end.Column+1
	return hcl.Range{Filename: name, Start: pos, End: end}
}

// checkExpr refuses what evaluation could not do in small time and space (for
// expressions over literals multiply), and secrets where HCL would put a value
// into an error text: as an index or as an object's key.
func checkExpr(expr hclsyntax.Expression) hcl.Diagnostics {
	w := &exprWalker{}
	diags := hclsyntax.Walk(expr, w)
	if w.calls > maxCalls {
		diags = append(diags, errorAt(expr.Range(), "Expression too long", "An expression may have at most %d function calls.", maxCalls))
	}
	return diags
}

type exprWalker struct {
	calls      int
	arithmetic int // how many arithmetic operators enclose the node
}

var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4,}\s*$`)

func (w *exprWalker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	switch e := n.(type) {
	case *hclsyntax.ForExpr:
		return hcl.Diagnostics{errorAt(e.Range(), "Not available here", "The configuration has no `for` expressions. Write the values out.")}
	case *hclsyntax.SplatExpr:
		return hcl.Diagnostics{errorAt(e.Range(), "Not available here", "The configuration has no splat expressions. Write the values out.")}
	case *hclsyntax.FunctionCallExpr:
		w.calls++
	case *hclsyntax.IndexExpr:
		if callsSecret(e.Key) {
			return hcl.Diagnostics{errorAt(e.Range(), "Secret not allowed here", "A secret cannot be an index.")}
		}
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			if callsSecret(item.KeyExpr) {
				return hcl.Diagnostics{errorAt(item.KeyExpr.Range(), "Secret not allowed here", "A secret cannot be a key.")}
			}
		}
	case *hclsyntax.LiteralValueExpr:
		if tooLarge(e.Val) {
			return hcl.Diagnostics{errorAt(e.Range(), "Number out of range", "This number is too large or too small.")}
		}
		if w.arithmetic > 0 && e.Val.Type() == cty.String && hugeExponent.MatchString(e.Val.AsString()) {
			return hcl.Diagnostics{errorAt(e.Range(), "Number out of range", "This number is too large or too small.")}
		}
	case *hclsyntax.BinaryOpExpr:
		if e.Op.Type == cty.Number {
			w.arithmetic++
		}
	case *hclsyntax.UnaryOpExpr:
		if e.Op.Type == cty.Number {
			w.arithmetic++
		}
	}
	return nil
}

func (w *exprWalker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	switch e := n.(type) {
	case *hclsyntax.BinaryOpExpr:
		if e.Op.Type == cty.Number {
			w.arithmetic--
		}
	case *hclsyntax.UnaryOpExpr:
		if e.Op.Type == cty.Number {
			w.arithmetic--
		}
	}
	return nil
}

func callsSecret(expr hclsyntax.Node) bool {
	found := false
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && call.Name == "secret" {
			found = true
		}
		return nil
	})
	return found
}

// tooLarge says that a number's exponent is out of reason: its decimal text
// would be larger than everything else here together.
func tooLarge(v cty.Value) bool {
	if v.IsNull() || !v.IsKnown() || v.Type() != cty.Number {
		return false
	}
	bf := v.AsBigFloat()
	if bf.IsInf() {
		return true
	}
	exp := new(big.Float).Copy(bf).MantExp(nil)
	return exp > maxExponent || exp < -maxExponent
}

// checkMagnitude applies tooLarge to everything inside of v.
func checkMagnitude(v cty.Value) bool {
	ok := true
	_ = cty.Walk(v, func(_ cty.Path, v cty.Value) (bool, error) {
		v, _ = v.Unmark()
		if tooLarge(v) {
			ok = false
		}
		return ok, nil
	})
	return ok
}
