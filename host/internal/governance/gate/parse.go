package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// kind is the type of a JSON value.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

func (k kind) String() string {
	return [...]string{"null", "a bool", "a number", "a string", "an array", "an object"}[k]
}

// value is a JSON value over its own compact bytes, which it never changes.
type value struct {
	kind    kind
	raw     []byte
	at      int      // of raw in the document
	keys    []string // of an object, decoded, in order
	members []value  // of an object or an array
}

// parseJSON reads one valid UTF-8 document. The error names a place.
func parseJSON(raw []byte) (value, error) {
	var compact bytes.Buffer
	compact.Grow(len(raw))
	if err := json.Compact(&compact, raw); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return value{}, fmt.Errorf("not JSON at byte %d", syntax.Offset)
		}
		return value{}, errors.New("not JSON")
	}
	p := &parser{b: compact.Bytes()}
	v := p.value(0)
	return v, p.err
}

// parser takes a compact, valid document apart.
type parser struct {
	b    []byte
	i    int
	path []string
	err  error
}

func (p *parser) place() string {
	if len(p.path) == 0 {
		return "the top level"
	}
	var b strings.Builder
	for _, t := range p.path {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(t, "~", "~0"), "/", "~1"))
	}
	if s := b.String(); len(s) <= 200 {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(b.String()[:200], "")) + "…"
}

func (p *parser) value(depth int) value {
	if depth > MaxArgsDepth {
		p.err = fmt.Errorf("nested more than %d levels deep at %s", MaxArgsDepth, p.place())
	}
	if p.err != nil {
		return value{}
	}
	start := p.i
	v := value{at: start}
	switch p.b[p.i] {
	case '{':
		v.kind = object
		p.object(&v, depth)
	case '[':
		v.kind = array
		p.i++
		for n := 0; p.err == nil && p.b[p.i] != ']'; n++ {
			if n > 0 {
				p.i++ // the comma
			}
			p.path = append(p.path, strconv.Itoa(n))
			v.members = append(v.members, p.value(depth+1))
			p.path = p.path[:len(p.path)-1]
		}
		p.i++
	case '"':
		v.kind = text
		p.skipString()
	default:
		for p.i < len(p.b) && !bytes.ContainsRune([]byte(",]}"), rune(p.b[p.i])) {
			p.i++
		}
		switch p.b[start] {
		case 't', 'f':
			v.kind = boolean
		case 'n':
			v.kind = null
		default:
			v.kind = number
		}
	}
	if p.err != nil {
		return value{}
	}
	v.raw = p.b[start:p.i:p.i]
	return v
}

func (p *parser) object(v *value, depth int) {
	seen := map[string]bool{}
	p.i++
	for p.err == nil && p.b[p.i] != '}' {
		if len(v.keys) > 0 {
			p.i++ // the comma
		}
		start := p.i
		p.skipString()
		key := decodeString(p.b[start:p.i])
		p.i++ // the colon
		p.path = append(p.path, key)
		if seen[key] {
			p.err = fmt.Errorf("the key at %s is given twice", p.place())
			return
		}
		seen[key] = true
		v.keys, v.members = append(v.keys, key), append(v.members, p.value(depth+1))
		p.path = p.path[:len(p.path)-1]
	}
	p.i++
}

func (p *parser) skipString() {
	for p.i++; p.b[p.i] != '"'; p.i++ {
		if p.b[p.i] == '\\' {
			p.i++
		}
	}
	p.i++
}

// decodeString is the text of a JSON string with its quotes.
func decodeString(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw) // not reached: the document is valid
	}
	return s
}

// find follows the steps of a JSON pointer.
func (v value) find(tokens []string) (value, bool) {
	for _, t := range tokens {
		i, ok := v.step(t)
		if !ok {
			return value{}, false
		}
		v = v.members[i]
	}
	return v, true
}
