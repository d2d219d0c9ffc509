package config

import (
	"math/big"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// blockSpec describes one block of the language. The specs are the language:
// decoding, suggestions, defaults and the reference page all come from them.
type blockSpec struct {
	name     string
	labels   []labelSpec
	repeat   bool   // may occur more than once
	required bool   // must occur
	doc      string // one sentence, for the reference
	attrs    []attrSpec
	blocks   []*blockSpec
	plugin   bool // the body is the plugin's; it is not decoded here
}

// labelSpec is a label of a block.
type labelSpec struct {
	what string // "name", "driver"
	form *regexp.Regexp
	say  string // what form means
}

// attrSpec is one attribute.
type attrSpec struct {
	name      string
	typ       *valueType
	def       string // default in HCL's syntax; empty: none
	computed  string // what the default is, in words, where it is computed
	required  bool
	sensitive bool // secret() is allowed
	doc       string
}

// valueType is how an attribute's expression becomes a Go value. Exactly one of
// parse and expr is set.
type valueType struct {
	name  string // for the reference: "size"
	want  cty.Type
	parse func(cty.Value) (any, error) // of a known, unmarked value of type want, not null
	expr  func(hclsyntax.Expression) (any, hcl.Diagnostics)
}

func (b *blockSpec) attr(name string) *attrSpec {
	for i := range b.attrs {
		if b.attrs[i].name == name {
			return &b.attrs[i]
		}
	}
	return nil
}

func (b *blockSpec) block(name string) *blockSpec {
	for _, c := range b.blocks {
		if c.name == name {
			return c
		}
	}
	return nil
}

var (
	driverForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	instanceForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	agentForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

func driverLabel() labelSpec {
	return labelSpec{what: "driver", form: driverForm, say: "1 to 64 lower-case letters, digits and dashes (the plugin's executable is named after it)"}
}

func instanceLabel() labelSpec {
	return labelSpec{what: "name", form: instanceForm, say: "1 to 64 letters, digits, dashes and underscores, with a letter or an underscore first"}
}

func agentLabel() labelSpec {
	return labelSpec{what: "name", form: agentForm, say: "1 to 128 letters, digits, dots, dashes and underscores, with a letter or a digit first"}
}

// microUSD is a number of USD as whole millionths.
func microUSD(v cty.Value) (any, error) {
	r, _ := v.AsBigFloat().Rat(nil)
	if r == nil || r.Sign() <= 0 || r.Cmp(big.NewRat(1e9, 1)) > 0 {
		return nil, errRange("more than 0 and at most 1000000000")
	}
	r.Mul(r, big.NewRat(1e6, 1))
	// A decimal literal has no exact binary form: round to the millionth.
	n := new(big.Int).Quo(new(big.Int).Add(new(big.Int).Mul(r.Num(), big.NewInt(2)), r.Denom()), new(big.Int).Mul(r.Denom(), big.NewInt(2)))
	if n.Sign() == 0 {
		return nil, errRange("at least 0.000001")
	}
	return n.Int64(), nil
}
