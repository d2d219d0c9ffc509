package condition

import (
	"errors"
	"slices"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// maxElements is how many elements a list may have to be looked through, and
// maxText how long a text may become: a call has up to 1 MiB of arguments, and
// a decision takes little time whatever is in them.
const (
	maxElements = 10000
	maxText     = 16 << 20
)

var errTooLong = errors.New("too long to be looked through")

// swells says that a function would make a text out of all proportion.
func swells(name string, args []cty.Value) bool {
	switch name {
	case "join":
		n := 0
		for _, list := range args[1:] {
			n += list.LengthInt()
		}
		return n*len(args[0].AsString()) > maxText
	case "replace":
		return (len(args[0].AsString())+1)*len(args[2].AsString()) > maxText
	}
	return false
}

// functions is the fixed list: pure, in time that grows with their arguments
// only, and none that catches errors or converts (no can, try, tonumber).
func functions() map[string]function.Function {
	return map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "int": stdlib.IntFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "signum": stdlib.SignumFunc,
		"chomp": stdlib.ChompFunc, "join": stdlib.JoinFunc, "lower": stdlib.LowerFunc, "replace": stdlib.ReplaceFunc,
		"reverse": stdlib.ReverseFunc, "sort": stdlib.SortFunc, "split": stdlib.SplitFunc, "strlen": stdlib.StrlenFunc,
		"substr": stdlib.SubstrFunc, "trim": stdlib.TrimFunc, "trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc,
		"trimsuffix": stdlib.TrimSuffixFunc, "upper": stdlib.UpperFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": containsFunc(),
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "keys": stdlib.KeysFunc, "length": stdlib.LengthFunc,
		"lookup": stdlib.LookupFunc, "slice": stdlib.SliceFunc, "values": stdlib.ValuesFunc,
	}
}

// results are the types of the functions' results; dynamic where they depend
// on the arguments.
func results() map[string]cty.Type {
	out := map[string]cty.Type{"contains": cty.Bool}
	for name := range functions() {
		if name != "contains" {
			out[name] = cty.DynamicPseudoType
		}
	}
	for _, name := range []string{"abs", "ceil", "floor", "int", "max", "min", "signum", "strlen", "length"} {
		out[name] = cty.Number
	}
	for _, name := range []string{"chomp", "join", "lower", "replace", "reverse", "substr", "trim", "trimprefix", "trimspace", "trimsuffix", "upper"} {
		out[name] = cty.String
	}
	return out
}

// FunctionNames are the functions of conditions, in order.
func FunctionNames() []string {
	names := []string{"matches"}
	for name := range functions() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// containsFunc is cty's contains without its silence about types: a list that
// does not hold the value but holds something that cannot be compared with it
// is an error.
func containsFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}, {Name: "value", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if !isSequence(args[0]) {
				return cty.NilVal, errors.New("not a list")
			}
			if args[0].LengthInt() > maxElements {
				return cty.NilVal, errTooLong
			}
			mismatch := false
			for it := args[0].ElementIterator(); it.Next(); {
				_, v := it.Element()
				same, ok := sameValue(v, args[1])
				if same {
					return cty.True, nil
				}
				mismatch = mismatch || !ok
			}
			if mismatch {
				return cty.NilVal, errors.New("values of other types")
			}
			return cty.False, nil
		},
	})
}
