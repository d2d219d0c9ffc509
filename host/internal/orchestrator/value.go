package orchestrator

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A rule checks one decoded JSON value and says what is wrong, or nothing.
type rule func(v any) string

// object is a JSON object schema; a closed one takes no other members.
type object struct {
	required []string
	members  map[string]rule
	open     bool
}

func (o object) check(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return "is not an object"
	}
	for _, name := range o.required {
		if _, ok := m[name]; !ok {
			return fmt.Sprintf("%s is missing", name)
		}
	}
	for name, value := range m {
		r, ok := o.members[name]
		if !ok {
			if o.open {
				continue
			}
			return fmt.Sprintf("%s is not a member", name)
		}
		if why := r(value); why != "" {
			return name + " " + why
		}
	}
	return ""
}

func anyObject(v any) string {
	if _, ok := v.(map[string]any); !ok {
		return "is not an object"
	}
	return ""
}

func boolean(v any) string {
	if _, ok := v.(bool); !ok {
		return "is not a boolean"
	}
	return ""
}

// text is a string of at least min and at most max characters; max 0: no limit.
func text(low, high int) rule {
	return func(v any) string {
		s, ok := v.(string)
		n := utf8.RuneCountInString(s)
		switch {
		case !ok:
			return "is not a string"
		case n < low:
			return "is too short"
		case high > 0 && n > high:
			return "is too long"
		}
		return ""
	}
}

func word(words ...string) rule {
	return func(v any) string {
		if s, ok := v.(string); !ok || !slices.Contains(words, s) {
			return "is not one of " + strings.Join(words, ", ")
		}
		return ""
	}
}

func number(low, high float64, whole bool) rule {
	return func(v any) string {
		f, ok := v.(float64)
		if !ok || f < low || f > high || (whole && f != math.Trunc(f)) {
			return "is not a number in range"
		}
		return ""
	}
}

var uuidPattern = regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func uuidText(v any) string {
	if s, ok := v.(string); !ok || !uuidPattern.MatchString(s) {
		return "is not a uuid"
	}
	return ""
}

func orNull(r rule) rule {
	return func(v any) string {
		if v == nil {
			return ""
		}
		return r(v)
	}
}

func uri(v any) string {
	s, ok := v.(string)
	if !ok {
		return "is not a string"
	}
	if u, err := url.Parse(s); err != nil || u.Scheme == "" || u.Host == "" {
		return "is not a uri"
	}
	return ""
}

// timestamp is an RFC 3339 date-time with a zone.
func timestamp(v any) string {
	s, ok := v.(string)
	if !ok {
		return "is not a string"
	}
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
		return "is not an RFC 3339 date-time with a zone"
	}
	return ""
}

func list(unique bool, r rule) rule {
	return func(v any) string {
		items, ok := v.([]any)
		if !ok {
			return "is not an array"
		}
		seen := map[string]bool{}
		for _, item := range items {
			if why := r(item); why != "" {
				return "has an item that " + why
			}
			if s, ok := item.(string); ok && unique {
				if seen[s] {
					return "has an item twice"
				}
				seen[s] = true
			}
		}
		return ""
	}
}

var capabilityPattern = regexp.MustCompile(`^(isolation:(vm|container|host|microvm|none|[a-z][a-z0-9_-]*)` +
	`|runtime:(claude-code|codex|cursor|aider|custom:[a-z][a-z0-9_-]*)` +
	`|platform:[a-z][a-z0-9_-]*/[a-z0-9_]{2,}|resumable|hitl|multi-tenant|x-[a-z][a-z0-9_:-]*)$`)

func capability(v any) string {
	if s, ok := v.(string); !ok || !capabilityPattern.MatchString(s) {
		return "is not in the capability vocabulary"
	}
	return ""
}
