package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

func errRange(say string) error { return fmt.Errorf("must be %s", say) }

func str(name string, checks ...func(string) error) *valueType {
	return &valueType{name: name, want: cty.String, parse: func(v cty.Value) (any, error) {
		s := v.AsString()
		for _, check := range checks {
			if err := check(s); err != nil {
				return nil, err
			}
		}
		return s, nil
	}}
}

func enum(values ...string) *valueType {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	list := strings.Join(quoted, ", ")
	return str(strings.Join(quoted, " or "), func(s string) error {
		for _, v := range values {
			if s == v {
				return nil
			}
		}
		return fmt.Errorf("%s is not one of %s%s", quote(s), list, didYouMean(s, values))
	})
}

func boolean() *valueType {
	return &valueType{name: "bool", want: cty.Bool, parse: func(v cty.Value) (any, error) { return v.True(), nil }}
}

func integer(lo, hi int64) *valueType {
	return &valueType{name: fmt.Sprintf("whole number, %d to %d", lo, hi), want: cty.Number, parse: func(v cty.Value) (any, error) {
		return wholeNumber(v, lo, hi)
	}}
}

func wholeNumber(v cty.Value, lo, hi int64) (int64, error) {
	n, acc := v.AsBigFloat().Int64()
	if acc != big.Exact || n < lo || n > hi {
		return 0, errRange(fmt.Sprintf("a whole number from %d to %d", lo, hi))
	}
	return n, nil
}

// number is a number above lo, up to and with hi.
func number(lo, hi float64) *valueType {
	return &valueType{name: "number", want: cty.Number, parse: func(v cty.Value) (any, error) {
		f, _ := v.AsBigFloat().Float64()
		if !(f > lo && f <= hi) {
			return nil, errRange(fmt.Sprintf("more than %g and at most %g", lo, hi))
		}
		return f, nil
	}}
}

func usd() *valueType { return &valueType{name: "USD", want: cty.Number, parse: microUSD} }

func size() *valueType {
	return &valueType{name: `size ("2GiB")`, want: cty.String, parse: func(v cty.Value) (any, error) { return anyOf(ParseSize(v.AsString())) }}
}

// duration is one that is at least so long: what is shorter is a slip of the pen
// and not a wish.
func duration(least time.Duration) *valueType {
	return &valueType{name: `duration ("15m")`, want: cty.String, parse: func(v cty.Value) (any, error) {
		d, err := ParseDuration(v.AsString())
		if err == nil && d < least {
			err = fmt.Errorf("%s is too short to make sense here: at least %s", quote(v.AsString()), least)
		}
		return anyOf(d, err)
	}}
}

func anyOf[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func strs(name string, checks ...func(string) error) *valueType {
	return &valueType{name: "list of " + name, want: cty.List(cty.String), parse: func(v cty.Value) (any, error) {
		out := []string{}
		for i, e := range v.AsValueSlice() {
			path := cty.IndexIntPath(i)
			if e.IsNull() {
				return nil, path.NewErrorf("must not be null")
			}
			for _, check := range checks {
				if err := check(e.AsString()); err != nil {
					return nil, path.NewError(err)
				}
			}
			out = append(out, e.AsString())
		}
		return out, nil
	}}
}

// uint32s is a list of whole numbers; n != 0 is how many there must be.
func uint32s(n int, lo, hi int64) *valueType {
	name := "list of whole numbers"
	if n != 0 {
		name = fmt.Sprintf("list of %d whole numbers", n)
	}
	return &valueType{name: name, want: cty.List(cty.Number), parse: func(v cty.Value) (any, error) {
		out := []uint32{}
		for i, e := range v.AsValueSlice() {
			path := cty.IndexIntPath(i)
			if e.IsNull() {
				return nil, path.NewErrorf("must not be null")
			}
			u, err := wholeNumber(e, lo, hi)
			if err != nil {
				return nil, path.NewError(err)
			}
			out = append(out, uint32(u))
		}
		if n != 0 && len(out) != n {
			return nil, fmt.Errorf("needs exactly %d numbers", n)
		}
		return out, nil
	}}
}

// object is an object of any JSON-ready values, as map[string]any with numbers
// as json.Number.
func object() *valueType {
	return &valueType{name: "object", want: cty.DynamicPseudoType, parse: func(v cty.Value) (any, error) {
		if !v.Type().IsObjectType() && !v.Type().IsMapType() {
			return nil, errors.New("must be an object, for example { max_refund = 500 }")
		}
		b, err := ctyjson.Marshal(v, v.Type())
		if err != nil {
			return nil, errors.New("cannot be written as JSON")
		}
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.UseNumber()
		out := map[string]any{}
		if err := d.Decode(&out); err != nil {
			return nil, errors.New("cannot be written as JSON")
		}
		return out, nil
	}}
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func atMost(n int) func(string) error {
	return func(s string) error {
		if len([]rune(s)) > n {
			return fmt.Errorf("%d characters are too many: at most %d", len([]rune(s)), n)
		}
		return nil
	}
}

func matching(form *regexp.Regexp, say string) func(string) error {
	return func(s string) error {
		if !form.MatchString(s) {
			return fmt.Errorf("%s is not %s", quote(s), say)
		}
		return nil
	}
}

func absolutePath(s string) error {
	switch {
	case !filepath.IsAbs(s):
		return fmt.Errorf("%s is not an absolute path", quote(s))
	case strings.ContainsRune(s, 0):
		return errors.New("a path cannot hold a NUL byte")
	case filepath.Clean(s) != s && filepath.Clean(s) != strings.TrimRight(s, "/"):
		return fmt.Errorf("%s has dots or doubled slashes in it: write %q", quote(s), filepath.Clean(s))
	}
	return nil
}

// orEmpty lets a check pass on the empty string.
func orEmpty(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func hostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%s is not host:port", quote(s))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 || strings.HasPrefix(port, "+") {
		return fmt.Errorf("%s has no port from 0 to 65535", quote(s))
	}
	if net.ParseIP(host) == nil {
		return hostName(host)
	}
	return nil
}

var hostNameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*$`)

func hostName(s string) error {
	if net.ParseIP(s) != nil {
		return nil
	}
	if len(s) > 253 || !hostNameForm.MatchString(s) {
		return fmt.Errorf("%s is not a host name or an IP address", quote(s))
	}
	return nil
}

func httpURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return errors.New("is not an http or https URL with a host")
	case u.User != nil:
		return errors.New("holds a user name or password; credentials do not belong into a URL")
	case u.Fragment != "" || u.RawQuery != "":
		return errors.New("has a query or a fragment; write the base URL only")
	}
	return nil
}
