package condition

import (
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Condition is a compiled expression that answers with a bool. It may be used
// by many goroutines at once.
type Condition struct {
	expr hclsyntax.Expression
	text string
	uses map[string]bool
	args []string // the top-level arguments that are read
	all  bool     // or all of them
	rng  hcl.Range
}

// Compile rebuilds an expression strictly. The diagnostics name what can never
// work: unknown variables, attributes and functions, a bad pattern, operands
// whose types can never fit. The Condition is nil if there are any.
func Compile(expr hclsyntax.Expression) (*Condition, hcl.Diagnostics) {
	c := &compiler{uses: map[string]bool{}}
	out := c.compile(expr)
	if !fits(out.typ, cty.Bool) {
		c.fail(expr.Range(), "Not a condition", "A condition is true or false; this is a %s.", out.typ.FriendlyName())
	}
	if c.diags.HasErrors() {
		return nil, c.diags
	}
	return &Condition{expr: out.expr, text: out.text, uses: c.uses, args: c.args, all: c.all, rng: expr.Range()}, nil
}

// Text is the condition in one canonical spelling: two that differ only in
// layout, comments or needless parentheses have the same text.
func (c *Condition) Text() string { return c.text }

// Uses says whether the variable ("args", "history") is read.
func (c *Condition) Uses(name string) bool { return c.uses[name] }

// Args are the top-level arguments that the condition reads; all says that it
// may read any, or which ones there are. What it does not read need not be
// among the variables.
func (c *Condition) Args() (names []string, all bool) { return c.args, c.all }

// Range is where the condition is written.
func (c *Condition) Range() hcl.Range { return c.rng }

// Eval evaluates the condition over the variables. An error says that something
// could not be evaluated; holds may be true all the same, when the rest decides
// (a missing argument beside an || whose other side is true). An error never
// holds any value of a variable. Eval does not panic.
func (c *Condition) Eval(vars map[string]cty.Value) (holds bool, err error) {
	defer func() {
		if recover() != nil {
			holds, err = false, fmt.Errorf("%s: this cannot be evaluated", place(c.rng))
		}
	}()
	val, diags := c.expr.Value(&hcl.EvalContext{Variables: vars})
	if diags.HasErrors() {
		err = c.explain(diags)
	}
	switch {
	case val == cty.NilVal || !val.IsKnown():
	case val.IsNull() || val.Type() != cty.Bool:
		if err == nil {
			err = fmt.Errorf("%s: a condition is true or false, this is %s", place(c.rng), describe(val))
		}
	default:
		holds = val.True()
	}
	if err == nil && (val == cty.NilVal || !val.IsKnown()) {
		err = fmt.Errorf("%s: this cannot be evaluated", place(c.rng))
	}
	return holds, err
}

// explain is the first error. The details of HCL's own diagnostics may quote
// values, so only their summaries are used; ours are marked.
func (c *Condition) explain(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		at := c.rng
		if d.Subject != nil {
			at = *d.Subject
		}
		if _, ours := d.Extra.(valueless); ours {
			return fmt.Errorf("%s: %s", place(at), d.Detail)
		}
		return fmt.Errorf("%s: %s", place(at), lowerFirst(d.Summary))
	}
	return errors.New("this cannot be evaluated")
}

// valueless marks a diagnostic whose detail holds no value of a variable.
type valueless struct{}

// bad is what a node answers when it cannot be evaluated.
func bad(at hcl.Range, format string, args ...any) (cty.Value, hcl.Diagnostics) {
	return cty.DynamicVal, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Cannot be evaluated", Detail: fmt.Sprintf(format, args...), Subject: &at, Extra: valueless{}}}
}

func place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d,%d", r.Filename, r.Start.Line, r.Start.Column)
}

func lowerFirst(s string) string {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return s
	}
	return string(s[0]+'a'-'A') + s[1:]
}

// describe names a value's type with its article, never the value.
func describe(v cty.Value) string {
	switch {
	case v.IsNull():
		return "null"
	case v.Type() == cty.Number || v.Type() == cty.String || v.Type() == cty.Bool:
		return "a " + v.Type().FriendlyName()
	case v.Type().IsObjectType() || v.Type().IsMapType():
		return "an object"
	case v.Type().IsTupleType() || v.Type().IsListType() || v.Type().IsSetType():
		return "a list"
	}
	return "a " + v.Type().FriendlyName()
}
