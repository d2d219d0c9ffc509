// Package glob matches names of tools against patterns. It imports nothing of
// ours.
//
// The one idea: one matcher everywhere, compiled when a configuration is
// loaded, always case-sensitive: * is any text, / included; ? is one character;
// [seq] is one of the characters, a-z a range of them; [!seq] is one that is
// not among them. Everything else, the backslash included, stands for itself.
package glob

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxPattern bounds a pattern in bytes.
const maxPattern = 1024

// Pattern is a compiled pattern. It may be used by many goroutines at once.
type Pattern struct {
	text    string
	parts   []part
	literal bool
}

type kind uint8

const (
	char kind = iota // one given character
	one              // ?
	any              // *
	set              // [seq]
)

type part struct {
	kind   kind
	r      rune
	negate bool
	ranges [][2]rune
}

// Compile compiles a pattern. The error says what is wrong with it.
func Compile(pattern string) (*Pattern, error) {
	switch {
	case pattern == "":
		return nil, errors.New("a pattern must not be empty")
	case len(pattern) > maxPattern:
		return nil, fmt.Errorf("a pattern has at most %d bytes", maxPattern)
	case !utf8.ValidString(pattern):
		return nil, errors.New("a pattern is UTF-8")
	}
	p := &Pattern{text: pattern, literal: true}
	for runes := []rune(pattern); len(runes) > 0; {
		r := runes[0]
		runes = runes[1:]
		next := part{kind: char, r: r}
		switch r {
		case '*':
			next.kind = any
		case '?':
			next.kind = one
		case '[':
			var err error
			if next, runes, err = class(runes); err != nil {
				return nil, err
			}
		}
		p.literal = p.literal && next.kind == char
		if n := len(p.parts); next.kind == any && n > 0 && p.parts[n-1].kind == any {
			continue
		}
		p.parts = append(p.parts, next)
	}
	return p, nil
}

// class reads what follows a [. A ] that comes first is one of the characters.
func class(runes []rune) (part, []rune, error) {
	p := part{kind: set}
	if len(runes) > 0 && runes[0] == '!' {
		p.negate, runes = true, runes[1:]
	}
	for first := true; ; first = false {
		if len(runes) == 0 {
			return p, nil, errors.New(`a [ is never closed; [[] is the character itself`)
		}
		lo := runes[0]
		runes = runes[1:]
		if lo == ']' && !first {
			return p, runes, nil
		}
		hi := lo
		if len(runes) > 1 && runes[0] == '-' && runes[1] != ']' {
			hi, runes = runes[1], runes[2:]
		}
		if hi < lo {
			return p, nil, fmt.Errorf("the range %c-%c in [] is empty", lo, hi)
		}
		p.ranges = append(p.ranges, [2]rune{lo, hi})
	}
}

// String is the pattern as it was written.
func (p *Pattern) String() string { return p.text }

// Literal says whether the pattern matches only the name that it is.
func (p *Pattern) Literal() bool { return p.literal }

// Match says whether the whole name matches. Bytes that are not UTF-8 count as
// one character each.
func (p *Pattern) Match(name string) bool {
	if p.literal {
		return name == p.text
	}
	// After a mismatch the last * takes one character more: no other choice can
	// succeed where this fails, so the time is at most pattern × name.
	i, star, from := 0, -1, ""
	for rest := name; ; {
		if i < len(p.parts) && p.parts[i].kind == any {
			star, from = i, rest
			i++
			continue
		}
		if rest == "" && i == len(p.parts) {
			return true
		}
		if rest != "" && i < len(p.parts) {
			if r, n := utf8.DecodeRuneInString(rest); p.parts[i].match(r, n) {
				rest = rest[n:]
				i++
				continue
			}
		}
		if star < 0 || from == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(from)
		from = from[n:]
		rest, i = from, star+1
	}
}

// match is for a character of n bytes; a byte that is not UTF-8 comes as
// RuneError of one byte and is no character of any pattern.
func (p *part) match(r rune, n int) bool {
	broken := r == utf8.RuneError && n == 1
	switch p.kind {
	case char:
		return r == p.r && !broken
	case one:
		return true
	}
	for _, x := range p.ranges {
		if !broken && x[0] <= r && r <= x[1] {
			return !p.negate
		}
	}
	return p.negate
}
