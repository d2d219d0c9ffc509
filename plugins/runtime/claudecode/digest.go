package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// inputDigest is the same for two JSON texts that say the same: members in
// another order, other white space, 1.0 for 1. The CLI reads what it is given
// and prints it again, so texts cannot be compared; numbers are compared as
// written, exactly, and a number that the CLI has rounded is another one.
func inputDigest(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("the input is no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("something follows the input")
	}
	h := sha256.New()
	writeCanonical(h, v)
	return hex.EncodeToString(h.Sum(nil)), nil
}

func writeCanonical(w io.Writer, v any) {
	switch v := v.(type) {
	case map[string]any:
		fmt.Fprintf(w, "{%d", len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(w, "k%d:%s", len(k), k)
			writeCanonical(w, v[k])
		}
	case []any:
		fmt.Fprintf(w, "[%d", len(v))
		for _, e := range v {
			writeCanonical(w, e)
		}
	case string:
		fmt.Fprintf(w, "s%d:%s", len(v), v)
	case json.Number:
		fmt.Fprintf(w, "n%s;", canonicalNumber(string(v)))
	default: // true, false, nil
		fmt.Fprintf(w, "%v;", v)
	}
}

// canonicalNumber is the one way in which a decimal number is written here:
// sign, digits without zeros at either end, "e", exponent.
func canonicalNumber(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	mantissa, e, _ := strings.Cut(strings.ToLower(s), "e")
	exp := 0
	if e != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(e, "+"))
		if err != nil {
			return sign + s // beyond all reason: only equal to itself
		}
		exp = n
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	exp -= len(frac)
	digits := strings.TrimLeft(whole+frac, "0")
	if digits == "" {
		return "0"
	}
	short := strings.TrimRight(digits, "0")
	return fmt.Sprintf("%s%se%d", sign, short, exp+len(digits)-len(short))
}
