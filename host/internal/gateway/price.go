package gateway

import (
	"math/bits"
	"regexp"
)

// Amount is what model calls use: tokens of every kind together, and their cost
// in millionths of a USD.
type Amount struct {
	Tokens    int64 `json:"tokens"`
	CostMicro int64 `json:"cost_micro"`
}

func (a Amount) plus(b Amount) Amount {
	return Amount{a.Tokens + b.Tokens, a.CostMicro + b.CostMicro}
}

// Price is what a model costs, in millionths of a USD per million tokens.
type Price struct {
	Input, Output int64
	// CacheRead and CacheWrite are for tokens read from and written to the
	// prompt cache; 0: a tenth of Input, and one and a quarter of it (twice for
	// what is kept an hour).
	CacheRead, CacheWrite int64
}

// usage is what an answer says it has used.
type usage struct {
	input, output, cacheRead, cacheWrite, cacheWriteHour int64
}

func (u usage) tokens() int64 { return u.input + u.output + u.cacheRead + u.cacheWrite }

// cost is what that costs, rounded up to the millionth.
func (p Price) cost(u usage) int64 {
	read, write, hour := p.CacheRead, p.CacheWrite, p.CacheWrite
	if read == 0 {
		read = p.Input / 10
	}
	if write == 0 {
		write, hour = p.Input+p.Input/4, 2*p.Input
	}
	long := min(u.cacheWriteHour, u.cacheWrite)
	var hi, lo uint64
	for _, part := range [][2]int64{{u.input, p.Input}, {u.output, p.Output}, {u.cacheRead, read}, {u.cacheWrite - long, write}, {long, hour}} {
		h, l := bits.Mul64(uint64(max(part[0], 0)), uint64(max(part[1], 0)))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	const million = 1e6
	var carry uint64
	lo, carry = bits.Add64(lo, million-1, 0)
	if hi += carry; hi >= million {
		return maxAmount
	}
	n, _ := bits.Div64(hi, lo, million)
	return int64(min(n, maxAmount))
}

// maxAmount bounds what one answer may claim.
const maxAmount = 1 << 53

// dated is a model's name with the day of its release.
var dated = regexp.MustCompile(`^(.+)-[0-9]{8}$`)

// How a price was found.
const (
	priced        = ""
	pricedDefault = "default"
	pricedNot     = "none"
)

// price finds a model's price: by its name, by its name without the date, then
// the default "*". Without any it is zero.
func (a *api) price(model string) (Price, string) {
	if p, ok := a.def.Prices[model]; ok && model != "*" {
		return p, priced
	}
	if m := dated.FindStringSubmatch(model); m != nil {
		if p, ok := a.def.Prices[m[1]]; ok {
			return p, priced
		}
	}
	if p, ok := a.def.Prices["*"]; ok {
		return p, pricedDefault
	}
	return Price{}, pricedNot
}
