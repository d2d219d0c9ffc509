package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// tested is the version that the plugin's tests run.
const tested = "2.1.332"

// release is a version of the CLI: three numbers.
type release [3]int

var releaseText = regexp.MustCompile(`^v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?$`)

func parseRelease(s string) (r release, err error) {
	m := releaseText.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return r, fmt.Errorf("%.40q is no version such as 2.1.332", s)
	}
	for i := range r {
		r[i], _ = strconv.Atoi(m[i+1]) // digits, or nothing, which is 0
	}
	return r, nil
}

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

func (r release) compare(o release) int {
	return cmp.Or(cmp.Compare(r[0], o[0]), cmp.Compare(r[1], o[1]), cmp.Compare(r[2], o[2]))
}

// versionRange is a list of conditions that must all hold.
type versionRange struct{ conditions []condition }

type condition struct {
	op string
	v  release
}

var conditionText = regexp.MustCompile(`^(>=|<=|>|<|=|!=)?\s*(\S+)$`)

// parseRange reads ">= 2.1.300, < 2.2".
func parseRange(s string) (*versionRange, error) {
	r := &versionRange{}
	for part := range strings.SplitSeq(s, ",") {
		m := conditionText.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf(`%.40q is no condition such as ">= 2.1.300"; several have commas between them`, strings.TrimSpace(part))
		}
		v, err := parseRelease(m[2])
		if err != nil {
			return nil, err
		}
		r.conditions = append(r.conditions, condition{cmp.Or(m[1], "="), v})
	}
	return r, nil
}

func (r *versionRange) has(v release) bool {
	for _, c := range r.conditions {
		n := v.compare(c.v)
		ok := map[string]bool{">=": n >= 0, "<=": n <= 0, ">": n > 0, "<": n < 0, "=": n == 0, "!=": n != 0}[c.op]
		if !ok {
			return false
		}
	}
	return true
}
