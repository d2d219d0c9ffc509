// Package strict reads JSON of which nothing may be taken in two ways: a name
// that is there twice, a name in another case, text after the value, bytes that
// are no UTF-8. It imports the standard library only.
//
// The one idea: a value is read once, from the bytes that came, into a tree that
// keeps those bytes. Typed requests are decoded from the tree by the same shapes
// that their schemas are written from (Shape), so that a schema cannot promise
// what the decoder refuses.
package strict

import (
	"bytes"
	"strconv"
)

// Kind is what a value is.
type Kind uint8

// The kinds. The zero Kind is no value.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Value is one JSON value. Raw are its bytes as they came, without the space
// around it.
type Value struct {
	Kind    Kind
	Raw     []byte
	Text    string   // of a String, decoded
	Items   []Value  // of an Array
	Members []Member // of an Object, in the order they came
}

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Get finds a member by its exact name; the Kind is Absent when there is none.
func (v Value) Get(name string) Value {
	for _, m := range v.Members {
		if m.Name == name {
			return m.Value
		}
	}
	return Value{}
}

// Has says whether an object has a member.
func (v Value) Has(name string) bool { return v.Get(name).Kind != Absent }

// Without is an object with one member cut out: the other members keep their
// order and every byte of their values.
func (v Value) Without(name string) Value {
	out := Value{Kind: Object}
	var raw bytes.Buffer
	raw.WriteByte('{')
	for _, m := range v.Members {
		if m.Name == name {
			continue
		}
		if len(out.Members) > 0 {
			raw.WriteByte(',')
		}
		raw.Write(quote(m.Name))
		raw.WriteByte(':')
		raw.Write(m.Value.Raw)
		out.Members = append(out.Members, m)
	}
	raw.WriteByte('}')
	out.Raw = raw.Bytes()
	return out
}

// Integer reads a whole number: digits with at most a minus before them, no
// leading zero, no -0, no fraction, no exponent, within 64 bits.
func (v Value) Integer() (int64, bool) {
	if v.Kind != Number || string(v.Raw) == "-0" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Raw), 10, 64) // refuses . and e
	return n, err == nil
}
