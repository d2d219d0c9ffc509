package strict

import (
	"bytes"
	"strconv"
)

// Schema writes the shape as JSON Schema (2020-12), always with the same bytes.
// With docs it holds the descriptions too.
//
// It says all that Decode checks, except what a schema cannot say of how a value
// is written: a whole number as 3.0, 3e0 or -0, or one of more than 64 bits.
func (s *Shape) Schema(docs bool) []byte {
	var b bytes.Buffer
	s.write(&b, docs, nil)
	return b.Bytes()
}

// SchemaWith is Schema of an object with more members: extra is written into its
// properties, defs, if any, beside them.
func (s *Shape) SchemaWith(extra, defs []byte) []byte {
	var b bytes.Buffer
	s.write(&b, true, extra)
	if len(defs) == 0 {
		return b.Bytes()
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("}"))
	out = append(out, `,"$defs":`...)
	out = append(out, defs...)
	return append(out, '}')
}

func (s *Shape) write(b *bytes.Buffer, docs bool, extra []byte) {
	switch s.kind {
	case String:
		b.WriteString(`{"type":"string"`)
		if s.enum != nil {
			b.WriteString(`,"enum":`)
			list(b, s.enum)
		}
	case Number:
		b.WriteString(`{"type":"integer"`)
	case Bool:
		b.WriteString(`{"type":"boolean"`)
	case Array:
		b.WriteString(`{"type":"array"`)
		if s.max > 0 {
			b.WriteString(`,"maxItems":` + strconv.Itoa(s.max))
		}
		b.WriteString(`,"items":`)
		s.item.write(b, docs, nil)
	case Object:
		b.WriteString(`{"type":"object"`)
		if !s.any {
			s.members(b, docs, extra)
		}
	}
	if docs && s.doc != "" {
		b.WriteString(`,"description":`)
		b.Write(quote(s.doc))
	}
	b.WriteByte('}')
}

func (s *Shape) members(b *bytes.Buffer, docs bool, extra []byte) {
	var required []string
	b.WriteString(`,"properties":{`)
	for i, f := range s.fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(f.name))
		b.WriteByte(':')
		f.shape.write(b, docs, nil)
		if f.required {
			required = append(required, f.name)
		}
	}
	if len(extra) > 0 {
		if len(s.fields) > 0 {
			b.WriteByte(',')
		}
		b.Write(extra)
	}
	b.WriteString(`},"additionalProperties":false`)
	if required != nil {
		b.WriteString(`,"required":`)
		list(b, required)
	}
}

func list(b *bytes.Buffer, names []string) {
	b.WriteByte('[')
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(n))
	}
	b.WriteByte(']')
}
