// Package pointer parses JSON pointers (RFC 6901). It imports nothing of ours.
//
// The one idea: a pointer is checked once, when a configuration is loaded, and
// walked by whoever holds the document.
package pointer

import (
	"errors"
	"strings"
)

// maxPointer bounds a pointer in bytes, maxTokens its depth.
const (
	maxPointer = 1024
	maxTokens  = 64
)

// Pointer is a parsed pointer.
type Pointer struct {
	text   string
	tokens []string
}

// Parse parses a pointer; the empty one, which is the whole document, is
// refused.
func Parse(s string) (Pointer, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return Pointer{}, errors.New(`is not a JSON pointer: it starts with /, for example "/amount"`)
	case len(s) > maxPointer:
		return Pointer{}, errors.New("is too long for a JSON pointer: at most 1024 bytes")
	}
	p := Pointer{text: s}
	for _, t := range strings.Split(s[1:], "/") {
		for i := 0; i < len(t); i++ {
			if t[i] == '~' && (i+1 == len(t) || t[i+1] != '0' && t[i+1] != '1') {
				return Pointer{}, errors.New("is not a JSON pointer: ~ is written ~0, and / in a name ~1")
			}
		}
		p.tokens = append(p.tokens, strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"))
	}
	if len(p.tokens) > maxTokens {
		return Pointer{}, errors.New("is too deep for a JSON pointer: at most 64 steps")
	}
	return p, nil
}

// String is the pointer as it was written.
func (p Pointer) String() string { return p.text }

// Tokens are the unescaped steps, at least one.
func (p Pointer) Tokens() []string { return p.tokens }

// Index reads a token as an index of an array: digits without leading zeros.
func Index(token string) (int, bool) {
	if token == "" || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
