package config

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxSize bounds sizes to what fits every kernel interface (1 EiB).
const maxSize = 1 << 60

// maxDuration bounds durations to ten years.
const maxDuration = 10 * 366 * 24 * time.Hour

var (
	sizeForm = regexp.MustCompile(`^([0-9]{1,20}(?:\.[0-9]{1,20})?) ?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$`)
	dayForm  = regexp.MustCompile(`^([0-9]{1,4})d(.*)$`)
)

// ParseSize reads a size with its unit, such as "2GiB" or "500MB", as bytes.
// KiB, MiB, GiB and TiB count in 1024, KB, MB, GB and TB in 1000. A number
// without a unit is refused, because it is a guess.
func ParseSize(s string) (uint64, error) {
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, fmt.Errorf("a size needs a unit, for example %q", s+"MiB")
		}
		return 0, errors.New(`a size is a number and one of B, KiB, MiB, GiB, TiB, KB, MB, GB, TB, for example "2GiB"`)
	}
	n, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return 0, errors.New(`a size is a number and a unit, for example "2GiB"`)
	}
	unit := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[m[2]]
	n.Mul(n, new(big.Rat).SetInt64(unit))
	if !n.IsInt() {
		return 0, errors.New("this is not a whole number of bytes")
	}
	if n.Num().Cmp(big.NewInt(maxSize)) > 0 {
		return 0, errors.New("this size is out of range: at most 1048576TiB")
	}
	return n.Num().Uint64(), nil
}

// ParseDuration reads a duration such as "15m", "1h30m" or "90d"; a day is 24
// hours. Zero, negative durations and numbers without a unit are refused.
func ParseDuration(s string) (time.Duration, error) {
	const form = `a duration is a number and one of ms, s, m, h, d, for example "15m"`
	rest, days := s, time.Duration(0)
	if m := dayForm.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, errors.New(form)
		}
		days, rest = time.Duration(n)*24*time.Hour, m[2]
	}
	d := days
	if rest != "" {
		if strings.ContainsAny(rest, "+-") {
			return 0, errors.New("a duration has no sign")
		}
		if _, err := strconv.ParseFloat(rest, 64); err == nil {
			return 0, fmt.Errorf("a duration needs a unit, for example %q", rest+"s")
		}
		part, err := time.ParseDuration(rest)
		if err != nil {
			return 0, errors.New(form)
		}
		if part > maxDuration {
			return 0, errors.New("this duration is out of range: at most ten years")
		}
		d += part
	} else if s == "" {
		return 0, errors.New(form)
	}
	if d <= 0 {
		return 0, errors.New("a duration must be more than zero; leave the attribute out for no limit")
	}
	if d > maxDuration {
		return 0, errors.New("this duration is out of range: at most ten years")
	}
	return d, nil
}
