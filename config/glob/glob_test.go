package glob

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"Bash", "Bash", true}, {"Bash", "bash", false}, {"bash", "Bash", false}, {"Bash", "Bash2", false},
		{"*", "", true}, {"*", "a/b/c", true}, {"mcp__*", "mcp__a/b", true}, {"*x*", "axb", true}, {"*x*", "ab", false}, {"a*b*c", "a/b/bc", true},
		{"?", "é", true}, {"?", "", false}, {"a?c", "a/c", true}, {"??", "a", false},
		{"[abc]", "b", true}, {"[abc]", "d", false}, {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[!a-c]x", "zx", true}, {"[!a]", "", false},
		{"[]]", "]", true}, {"[!]]", "]", false}, {"[!]]", "a", true}, {"[a-]", "-", true}, {"[-a]", "-", true}, {"[^a]", "^", true}, {"[^a]", "b", false}, {"[[]", "[", true},
		{`a\*`, `a\b`, true}, {`a\*`, "a*", false}, {"[α-ω]", "β", true}, {"**", "x", true}, {"a**b", "ab", true},
		{"?", "\xff", true}, {"[!a]", "\xff", true}, {"\uFFFD", "\xff", false}, {"refund*", "refund", true}, {"*refund", "x.refund", true}, {"]", "]", true},
	} {
		p, err := Compile(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if p.Match(c.name) != c.want || p.String() != c.pattern {
			t.Errorf("%q on %q is %v", c.pattern, c.name, !c.want)
		}
	}
}

func TestBadPatterns(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "[", "[a", "[!", "[]", "[!]", "a[b-a]", "x\xff", strings.Repeat("a", maxPattern+1)} {
		if _, err := Compile(p); err == nil {
			t.Errorf("%q is accepted", p)
		}
	}
}

// Time grows with pattern × name: this one would take for ever otherwise.
func TestManyStars(t *testing.T) {
	t.Parallel()
	p, err := Compile(strings.Repeat("*a", 100) + "b")
	if err != nil {
		t.Fatal(err)
	}
	if p.Match(strings.Repeat("a", 20000)) {
		t.Error("matches")
	}
}

// reference is the same language as a regular expression.
func reference(pattern string) *regexp.Regexp {
	out, runes := `(?s)\A`, []rune(pattern)
	for i := 0; i < len(runes); i++ {
		switch runes[i] {
		case '*':
			out += ".*"
		case '?':
			out += "."
		case '[':
			end := i + 1
			if end < len(runes) && runes[end] == '!' {
				end++
			}
			for end++; end < len(runes) && runes[end] != ']'; end++ {
			}
			if end >= len(runes) {
				return nil
			}
			body := runes[i+1 : end]
			class := "["
			if body[0] == '!' {
				class, body = "[^", body[1:]
			}
			for j := 0; j < len(body); j++ {
				class += regexp.QuoteMeta(string(body[j]))
				if body[j] == '-' {
					class = class[:len(class)-1] + `\-`
				}
				if j+2 < len(body) && body[j+1] == '-' {
					hi := regexp.QuoteMeta(string(body[j+2]))
					if body[j+2] == '-' {
						hi = `\-`
					}
					class += "-" + hi
					j += 2
				}
			}
			out += class + "]"
			i = end
		default:
			out += regexp.QuoteMeta(string(runes[i]))
		}
	}
	re, err := regexp.Compile(out + `\z`)
	if err != nil {
		return nil
	}
	return re
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*", "a*b?c", "[a-z]*", "[!a-c]", "[]a]", "[a-]", "**a*", "x[-b]y", "[[]", "[^a]"} {
		f.Add(s, "abc/xyz")
		f.Add(s, "a-b")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 200 || len(name) > 500 {
			return
		}
		p, err := Compile(pattern)
		if err != nil {
			return
		}
		got := p.Match(name)
		if !utf8.ValidString(name) {
			return
		}
		re := reference(pattern)
		if re == nil {
			t.Fatalf("%q compiles and the reference does not", pattern)
		}
		if want := re.MatchString(name); got != want {
			t.Fatalf("%q on %q is %v, the reference %q says %v", pattern, name, got, re, want)
		}
	})
}
