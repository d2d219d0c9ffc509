package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of a text.
const (
	MaxDepth   = 64      // objects and arrays within each other
	MaxMembers = 256     // of one object
	MaxItems   = 1 << 16 // of one array
	MaxValues  = 1 << 17 // of the whole text
	MaxBytes   = 4 << 20 // of the whole text
)

// ErrSyntax is every error of Parse. The text says what is wrong and at which
// byte; it never repeats what came.
var ErrSyntax = errors.New("not strict JSON")

// Parse reads one JSON value and nothing after it.
func Parse(text []byte) (Value, error) {
	if len(text) > MaxBytes {
		return Value{}, fmt.Errorf("%w: the text is longer than %d bytes", ErrSyntax, MaxBytes)
	}
	p := parser{text: text}
	p.space()
	v := p.value(0)
	p.space()
	if p.err == nil && p.at != len(text) {
		p.fail("there is something after the value")
	}
	if p.err != nil {
		return Value{}, p.err
	}
	return v, nil
}

type parser struct {
	text   []byte
	at     int
	values int
	err    error
}

// fail keeps the first error, and ends the reading.
func (p *parser) fail(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s (byte %d)", ErrSyntax, what, p.at)
	}
}

// peek is the next byte; 0 at the end and after an error.
func (p *parser) peek() byte {
	if p.err != nil || p.at >= len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// take skips a byte that must come now.
func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

func (p *parser) value(depth int) Value {
	start := p.at
	if p.values++; p.values > MaxValues {
		p.fail(fmt.Sprintf("more than %d values", MaxValues))
	}
	var v Value
	switch c := p.peek(); {
	case c == '{':
		v = p.object(depth + 1)
	case c == '[':
		v = p.array(depth + 1)
	case c == '"':
		v = Value{Kind: String, Text: p.str()}
	case c == '-' || c >= '0' && c <= '9':
		p.number()
		v = Value{Kind: Number}
	case p.word("true"), p.word("false"):
		v = Value{Kind: Bool}
	case p.word("null"):
		v = Value{Kind: Null}
	default:
		p.fail("a value is expected")
	}
	if p.err != nil {
		return Value{}
	}
	v.Raw = p.text[start:p.at:p.at]
	return v
}

func (p *parser) word(w string) bool {
	if p.err != nil || len(p.text)-p.at < len(w) || string(p.text[p.at:p.at+len(w)]) != w {
		return false
	}
	p.at += len(w)
	return true
}

func (p *parser) deep(depth int) bool {
	if depth > MaxDepth {
		p.fail(fmt.Sprintf("deeper than %d levels", MaxDepth))
	}
	return p.err != nil
}

func (p *parser) object(depth int) Value {
	if p.deep(depth) {
		return Value{}
	}
	v := Value{Kind: Object}
	p.at++
	p.space()
	if p.take('}') {
		return v
	}
	var names map[string]bool // made when it is cheaper than looking through
	for p.err == nil {
		if p.peek() != '"' {
			p.fail("a name is expected")
			break
		}
		name := p.str()
		if len(v.Members) == 8 {
			names = make(map[string]bool, 16)
			for _, m := range v.Members {
				names[m.Name] = true
			}
		}
		if names[name] || names == nil && v.Has(name) {
			p.fail("a name is there twice in one object")
			break
		}
		if names != nil {
			names[name] = true
		}
		p.space()
		if !p.take(':') {
			p.fail("a colon is expected")
			break
		}
		p.space()
		v.Members = append(v.Members, Member{Name: name, Value: p.value(depth)})
		if len(v.Members) > MaxMembers {
			p.fail(fmt.Sprintf("more than %d members in one object", MaxMembers))
		}
		p.space()
		if p.take('}') {
			return v
		}
		if !p.take(',') {
			p.fail("a comma or the end of the object is expected")
		}
		p.space()
	}
	return Value{}
}

func (p *parser) array(depth int) Value {
	if p.deep(depth) {
		return Value{}
	}
	v := Value{Kind: Array}
	p.at++
	p.space()
	if p.take(']') {
		return v
	}
	for p.err == nil {
		v.Items = append(v.Items, p.value(depth))
		if len(v.Items) > MaxItems {
			p.fail(fmt.Sprintf("more than %d items in one array", MaxItems))
		}
		p.space()
		if p.take(']') {
			return v
		}
		if !p.take(',') {
			p.fail("a comma or the end of the array is expected")
		}
		p.space()
	}
	return Value{}
}

func (p *parser) number() {
	p.take('-')
	switch c := p.peek(); {
	case c == '0':
		p.at++
	case c >= '1' && c <= '9':
		p.digits()
	default:
		p.fail("a digit is expected")
	}
	if p.take('.') {
		p.digits()
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		p.digits()
	}
}

func (p *parser) digits() {
	from := p.at
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.at++
	}
	if p.at == from {
		p.fail("a digit is expected")
	}
}

// str reads a string. A half of a surrogate pair without the other half is
// refused, and so are bytes that are no UTF-8.
func (p *parser) str() string {
	p.at++
	from := p.at
	var out []byte // nil until there is an escape
	for p.err == nil {
		switch c := p.peek(); {
		case p.at >= len(p.text):
			p.fail("a string does not end")
		case c == '"':
			part := p.text[from:p.at]
			p.at++
			if out == nil {
				return string(part)
			}
			return string(append(out, part...))
		case c == '\\':
			out = append(out, p.text[from:p.at]...)
			out = p.escape(out)
			from = p.at
		case c < 0x20:
			p.fail("a control character in a string")
		case c < utf8.RuneSelf:
			p.at++
		default:
			r, n := utf8.DecodeRune(p.text[p.at:])
			if r == utf8.RuneError && n <= 1 {
				p.fail("bytes that are no UTF-8")
			}
			p.at += n
		}
	}
	return ""
}

func (p *parser) escape(out []byte) []byte {
	p.at++
	c := p.peek()
	p.at++
	switch c {
	case '"', '\\', '/':
		return append(out, c)
	case 'b':
		return append(out, '\b')
	case 'f':
		return append(out, '\f')
	case 'n':
		return append(out, '\n')
	case 'r':
		return append(out, '\r')
	case 't':
		return append(out, '\t')
	case 'u':
		r := p.hex4()
		if utf16.IsSurrogate(r) {
			if !p.take('\\') || !p.take('u') {
				p.fail("half of a surrogate pair")
				return out
			}
			if r = utf16.DecodeRune(r, p.hex4()); r == utf8.RuneError {
				p.fail("half of a surrogate pair")
			}
		}
		return utf8.AppendRune(out, r)
	}
	p.fail("an escape that is none")
	return out
}

func (p *parser) hex4() rune {
	var r rune
	for range 4 {
		c := p.peek()
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			p.fail("four hexadecimal digits are expected")
			return utf8.RuneError
		}
		p.at++
	}
	return r
}

// quote writes a name as JSON.
func quote(name string) []byte {
	b, _ := json.Marshal(name) // a string is always writable
	return b
}
