package gate

import (
	"math/big"
	"strings"
)

// decimal is a number exactly as it was written: 0.digits × 10^exponent. Digits
// have no zeros at either end; zero has none at all.
type decimal struct {
	negative bool
	digits   string
	exponent *big.Int
}

// maxNumber is how many bytes a number may have to be compared.
const maxNumber = 4096

// parseDecimal reads a valid JSON number of any size, without making one of
// that size: 1e999999999999 costs as much as its text. It is false for a number
// that is too long.
func parseDecimal(s string) (decimal, bool) {
	d := decimal{exponent: new(big.Int)}
	if len(s) > maxNumber {
		return d, false
	}
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exp := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exp = s[:i], s[i+1:]
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	all := whole + frac
	d.digits = strings.TrimLeft(all, "0")
	if d.digits == "" {
		return decimal{exponent: new(big.Int)}, true
	}
	d.exponent.SetString(strings.TrimPrefix(exp, "+"), 10)
	if exp == "" {
		d.exponent.SetInt64(0)
	}
	d.exponent.Add(d.exponent, big.NewInt(int64(len(whole)-(len(all)-len(d.digits)))))
	d.digits = strings.TrimRight(d.digits, "0")
	return d, true
}

// compare is -1, 0 or 1.
func (d decimal) compare(o decimal) int {
	sign := func(x decimal) int {
		switch {
		case x.digits == "":
			return 0
		case x.negative:
			return -1
		}
		return 1
	}
	a, b := sign(d), sign(o)
	if a != b {
		if a < b {
			return -1
		}
		return 1
	}
	c := d.exponent.Cmp(o.exponent)
	if c == 0 {
		c = strings.Compare(d.digits, o.digits)
	}
	return a * c
}
