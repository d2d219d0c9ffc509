package condition

import (
	"errors"
	"reflect"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// MaxDigits is how many significant digits a number may have to be compared:
// cty keeps 512 bits, which tell any two decimals of 153 digits apart.
const MaxDigits = 150

// maxExponent bounds the exponent of a number, because some functions write
// numbers out.
const maxExponent = 4000

type opaque struct{}

// opaqueType is of a number that cannot be compared exactly; no node and no
// function takes it.
var opaqueType = cty.Capsule("number that is too long to be compared", reflect.TypeFor[opaque]())

// Number is a JSON number as a value.
func Number(text string) cty.Value {
	digits, exponent, ok := measure(text)
	if !ok || digits > MaxDigits || exponent > maxExponent || exponent < -maxExponent {
		return cty.CapsuleVal(opaqueType, &opaque{})
	}
	v, err := cty.ParseNumberVal(text)
	if err != nil {
		return cty.CapsuleVal(opaqueType, &opaque{})
	}
	return v
}

// measure is the number of significant digits of a JSON number and the size of
// its exponent.
func measure(text string) (digits, exponent int, ok bool) {
	mantissa, exp, _ := strings.Cut(strings.ToLower(text), "e")
	mantissa = strings.TrimPrefix(mantissa, "-")
	whole, frac, _ := strings.Cut(mantissa, ".")
	all := strings.TrimLeft(whole+frac, "0")
	digits = len(strings.TrimRight(all, "0"))
	negative := strings.HasPrefix(exp, "-")
	exp = strings.TrimLeft(strings.TrimLeft(exp, "+-"), "0")
	if len(exp) > 6 {
		return 0, 0, digits == 0
	}
	for _, c := range exp {
		exponent = exponent*10 + int(c-'0')
	}
	if negative {
		exponent = -exponent
	}
	if digits == 0 {
		return 0, 0, true // zero, however it is written
	}
	return digits, exponent + len(whole), true
}

// ErrSameKey says that two keys of an object are one in Unicode normal form C.
var ErrSameKey = errors.New("two keys of an object are the same in Unicode normal form")

// Object is an object of values by key. Keys that cty would make one are
// refused, since which of the two a condition saw would be a guess.
func Object(attrs map[string]cty.Value) (cty.Value, error) {
	if len(attrs) == 0 {
		return cty.EmptyObjectVal, nil
	}
	out := make(map[string]cty.Value, len(attrs))
	for k, v := range attrs {
		out[cty.NormalizeString(k)] = v
	}
	if len(out) != len(attrs) {
		return cty.NilVal, ErrSameKey
	}
	return cty.ObjectVal(out), nil
}
