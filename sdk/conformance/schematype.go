package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// hclType is a type in HCL's syntax, as far as a schema may use it.
type hclType struct {
	word   string // string, number, bool, any, list, set, map, tuple, object
	elem   []*hclType
	fields map[string]*hclType
	may    map[string]bool // optional fields
}

// parseType reads a type: string, list(number), object({a=string,
// b=optional(bool)}) and so on.
func parseType(text string) (*hclType, error) {
	p := &typeParser{rest: text}
	t, err := p.typ()
	if err == nil && strings.TrimSpace(p.rest) != "" {
		err = fmt.Errorf("%q is left over", p.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("type %.100q: %w", text, err)
	}
	return t, nil
}

type typeParser struct{ rest string }

var typeWord = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_-]*)`)

func (p *typeParser) word() string {
	m := typeWord.FindStringSubmatch(p.rest)
	if m == nil {
		return ""
	}
	p.rest = p.rest[len(m[0]):]
	return m[1]
}

func (p *typeParser) take(mark string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(p.rest, " \t\r\n"), mark)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *typeParser) typ() (*hclType, error) {
	t := &hclType{word: p.word()}
	var err error
	switch t.word {
	case "string", "number", "bool", "any":
		return t, nil
	case "list", "set", "map":
		if !p.take("(") {
			return nil, fmt.Errorf("( is missing after %s", t.word)
		}
		elem, err := p.typ()
		if err != nil {
			return nil, err
		}
		t.elem = []*hclType{elem}
	case "tuple":
		err = p.list("([", "]", func() error {
			elem, err := p.typ()
			t.elem = append(t.elem, elem)
			return err
		})
	case "object":
		t.fields, t.may = map[string]*hclType{}, map[string]bool{}
		err = p.list("({", "}", func() error { return p.field(t) })
	default:
		return nil, fmt.Errorf("%q is no type", t.word)
	}
	if err == nil && !p.take(")") {
		err = errors.New(") is missing")
	}
	return t, err
}

func (p *typeParser) list(begin, end string, item func() error) error {
	for _, mark := range begin {
		if !p.take(string(mark)) {
			return fmt.Errorf("%c is missing", mark)
		}
	}
	for !p.take(end) {
		if err := item(); err != nil {
			return err
		}
		p.take(",")
	}
	return nil
}

func (p *typeParser) field(t *hclType) error {
	name := p.word()
	if name == "" || !p.take("=") {
		return errors.New("a field is not NAME = TYPE")
	}
	before := p.rest
	if p.word() == "optional" && p.take("(") {
		t.may[name] = true
		inner, err := p.typ()
		if err != nil {
			return err
		}
		t.fields[name] = inner
		if p.take(",") { // a default, of any form
			depth := 0
			at := strings.IndexFunc(p.rest, func(r rune) bool {
				switch r {
				case '(', '[', '{':
					depth++
				case ']', '}':
					depth--
				case ')':
					if depth--; depth < 0 {
						return true
					}
				}
				return false
			})
			if at < 0 {
				return errors.New(") is missing")
			}
			p.rest = p.rest[at:]
		}
		if !p.take(")") {
			return errors.New(") is missing")
		}
		return nil
	}
	p.rest = before
	inner, err := p.typ()
	t.fields[name] = inner
	return err
}

// holds says whether a JSON value is of the type; null is of every type.
func (t *hclType) holds(raw json.RawMessage) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return t.fits(v)
}

func (t *hclType) fits(v any) error {
	bad := func() error { return fmt.Errorf("%v is no %s", v, t.word) }
	if v == nil || t.word == "any" {
		return nil
	}
	switch v := v.(type) {
	case string:
		if t.word != "string" {
			return bad()
		}
	case float64:
		if t.word != "number" {
			return bad()
		}
	case bool:
		if t.word != "bool" {
			return bad()
		}
	case []any:
		if t.word != "list" && t.word != "set" && t.word != "tuple" || t.word == "tuple" && len(v) != len(t.elem) {
			return bad()
		}
		for i, e := range v {
			elem := t.elem[0]
			if t.word == "tuple" {
				elem = t.elem[i]
			}
			if err := elem.fits(e); err != nil {
				return err
			}
		}
	case map[string]any:
		return t.fitsObject(v)
	}
	return nil
}

func (t *hclType) fitsObject(v map[string]any) error {
	if t.word != "map" && t.word != "object" {
		return fmt.Errorf("an object is no %s", t.word)
	}
	for name, e := range v {
		elem := t.fields[name]
		if t.word == "map" {
			elem = t.elem[0]
		}
		if elem == nil {
			return fmt.Errorf("the object has no field %s", name)
		}
		if err := elem.fits(e); err != nil {
			return err
		}
	}
	for name := range t.fields {
		if _, ok := v[name]; !ok && !t.may[name] {
			return fmt.Errorf("the field %s is missing", name)
		}
	}
	return nil
}
