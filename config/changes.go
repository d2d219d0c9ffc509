package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Change is one difference between two configurations.
type Change struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added | changed | removed
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Effect Effect `json:"effect"`
	At     string `json:"at"` // file:line, where it stands or stood
	// Note says what is particular: what has to be done, or why it is so.
	Note string `json:"note,omitempty"`

	// Ref is the plugin instance whose config it is.
	Ref string `json:"-"`
}

// Changes are the differences between what a host runs with and another
// configuration, in the order of their paths. Of a block that came or went only
// that is told.
func Changes(from, to map[string]Setting) []Change {
	var out []Change
	for _, path := range paths(from, to) {
		old, was := from[path]
		now, is := to[path]
		switch {
		case was && is && same(old, now), within(path, from, to):
		case was && is && now.order != nil && sameOrder(old.order, now.order):
		case was && is:
			c := Change{Path: path, Change: "changed", From: old.Text, To: now.Text, Effect: now.Effect, At: now.At, Ref: now.ref}
			switch {
			case old.Text == now.Text && now.Text != notShown:
				c.Note = "what it reads from outside has changed"
			case (old.Text == notShown) != (now.Text == notShown):
				c.Note = "one of the two is not shown, because its plugin was not asked: they may be the same"
			}
			out = append(out, c)
		case is && now.order == nil && !now.isDefault():
			out = append(out, Change{Path: path, Change: "added", To: now.Text, Effect: now.Effect, At: now.At, Ref: now.ref})
		case was && !is && old.order == nil && !old.isDefault():
			out = append(out, Change{Path: path, Change: "removed", From: old.Text, Effect: old.Effect, At: old.At, Ref: old.ref})
		}
	}
	return out
}

func paths(a, b map[string]Setting) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// same compares by value where both are known, else by what is written.
func same(a, b Setting) bool {
	switch {
	case a.ours != "" && b.ours != "":
		return a.ours == b.ours
	case a.Outside && b.Outside && a.Text != notShown && b.Text != notShown:
		return a.Text == b.Text
	case a.digest() != "" && b.digest() != "":
		return a.digest() == b.digest()
	}
	return a.Text == b.Text
}

// digest is of the value, as far as it is known here.
func (x Setting) digest() string {
	if x.ours != "" {
		return x.ours
	}
	return x.Digest
}

// within says that the path belongs to a block that only one side has.
func within(path string, a, b map[string]Setting) bool {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '.' {
			continue
		}
		up := path[:i]
		if a[up].block != b[up].block {
			return true
		}
	}
	return false
}

// sameOrder looks at what both lists have; what came or went is told apart.
func sameOrder(a, b []string) bool {
	common := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !slices.Contains(other, s) })
	}
	return slices.Equal(common(a, b), common(b, a))
}

// WriteChanges writes changes for a person, by their effects.
func WriteChanges(w io.Writer, list []Change) error {
	var out strings.Builder
	for _, group := range []struct {
		effect Effect
		head   string
	}{{Applied, "applied at once"}, {NextMission, "from the next mission on"}, {RestartNeeded, "a restart is needed"}} {
		first := true
		for _, c := range list {
			if c.Effect != group.effect {
				continue
			}
			if first {
				fmt.Fprintf(&out, "%s:\n", group.head)
				first = false
			}
			fmt.Fprintf(&out, "  %s %s", map[string]string{"added": "+", "removed": "-", "changed": "~"}[c.Change], clean(c.Path))
			switch c.Change {
			case "changed":
				fmt.Fprintf(&out, ": %s -> %s", clean(c.From), clean(c.To))
			case "added":
				fmt.Fprintf(&out, ": %s", clean(c.To))
			}
			fmt.Fprintf(&out, "  (%s)\n", clean(c.At))
			if c.Note != "" {
				fmt.Fprintf(&out, "      %s\n", clean(c.Note))
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// FromHost makes settings that came as JSON comparable: what they left out is
// found again.
func FromHost(list []Setting) map[string]Setting {
	out := make(map[string]Setting, len(list))
	for _, x := range list {
		x.block = x.Digest == "block"
		if strings.HasSuffix(x.Path, " (order)") {
			x.order = strings.Split(x.Text, ", ")
		}
		out[x.Path] = x
	}
	return out
}

// Keep is what a host runs with after it has taken a configuration over: the new
// settings, but the old ones where only a restart changes them.
func Keep(old, now map[string]Setting) map[string]Setting {
	out := map[string]Setting{}
	for path, x := range now {
		if x.Effect != RestartNeeded {
			out[path] = x
		}
	}
	for path, x := range old {
		if x.Effect == RestartNeeded {
			out[path] = x
		}
	}
	return out
}
