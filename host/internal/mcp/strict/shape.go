package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Shape is what a value of a Go type looks like as JSON. Of a struct's fields
// those with a `wc` tag are members: `wc:"name"` or `wc:"name,required"`. Beside
// it may stand `enum:"a,b"` (of a string), `max:"8"` (items of an array),
// `doc:"…"` (for the schema). Objects are closed, null is nowhere allowed.
//
// Field types are string, int64, bool, Value (any object, taken as it is),
// structs, slices of these, and pointers to them, which tell absent from empty.
type Shape struct {
	kind   Kind
	any    bool // an object of which nothing is known
	enum   []string
	max    int // items; 0 = MaxItems
	item   *Shape
	fields []field
	doc    string
}

type field struct {
	name     string
	required bool
	index    int
	shape    *Shape
}

// ShapeOf works out the shape of T, a struct. It panics when T is not of the
// types that Shape allows: shapes are made when the program starts, and a test
// makes each of them.
func ShapeOf[T any]() *Shape { return shapeOf(reflect.TypeFor[T](), "") }

func shapeOf(t reflect.Type, tag reflect.StructTag) *Shape {
	s := &Shape{doc: tag.Get("doc")}
	if t == reflect.TypeFor[Value]() {
		s.kind, s.any = Object, true
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem(), tag)
	case reflect.String:
		s.kind = String
		if e := tag.Get("enum"); e != "" {
			s.enum = strings.Split(e, ",")
		}
	case reflect.Int64:
		s.kind = Number
	case reflect.Bool:
		s.kind = Bool
	case reflect.Slice:
		s.kind, s.item = Array, shapeOf(t.Elem(), "")
		s.max, _ = strconv.Atoi(tag.Get("max"))
	case reflect.Struct:
		s.kind = Object
		for i := range t.NumField() {
			f := t.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("wc"), ",")
			if name != "" {
				s.fields = append(s.fields, field{name: name, required: opts == "required", index: i, shape: shapeOf(f.Type, f.Tag)})
			}
		}
	default:
		panic(fmt.Sprintf("strict: %s has no shape", t))
	}
	return s
}

// Names are the members of an object, in order.
func (s *Shape) Names() []string {
	names := make([]string, 0, len(s.fields))
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	return names
}

// FieldError says which member of a value is not as its shape wants it. Path is
// made of names that the shape knows and of indexes, never of text that came.
type FieldError struct {
	Path string // empty: the value itself
	What string
}

func (e *FieldError) Error() string {
	if e.Path == "" {
		return e.What
	}
	return e.Path + ": " + e.What
}

// Decode puts a value into the struct that into points to. The error is a
// *FieldError. into must be of the type that the shape was made of, and zero.
func (s *Shape) Decode(v Value, into any) error {
	if e := s.decode(v, reflect.ValueOf(into).Elem(), ""); e != nil {
		return e
	}
	return nil
}

func (s *Shape) decode(v Value, dst reflect.Value, path string) *FieldError {
	if dst.Kind() == reflect.Pointer {
		dst.Set(reflect.New(dst.Type().Elem()))
		dst = dst.Elem()
	}
	if v.Kind != s.kind {
		return &FieldError{path, "it must be " + s.article()}
	}
	switch s.kind {
	case String:
		if s.enum != nil && !slices.Contains(s.enum, v.Text) {
			return &FieldError{path, "it must be one of " + strings.Join(s.enum, ", ")}
		}
		dst.SetString(v.Text)
	case Number:
		n, ok := v.Integer()
		if !ok {
			return &FieldError{path, "it must be a whole number of at most 64 bits, without fraction and exponent"}
		}
		dst.SetInt(n)
	case Bool:
		dst.SetBool(v.Raw[0] == 't')
	case Array:
		if s.max > 0 && len(v.Items) > s.max {
			return &FieldError{path, fmt.Sprintf("it may have at most %d items", s.max)}
		}
		dst.Set(reflect.MakeSlice(dst.Type(), len(v.Items), len(v.Items)))
		for i, item := range v.Items {
			if e := s.item.decode(item, dst.Index(i), path+"["+strconv.Itoa(i)+"]"); e != nil {
				return e
			}
		}
	case Object:
		return s.object(v, dst, path)
	}
	return nil
}

func (s *Shape) object(v Value, dst reflect.Value, path string) *FieldError {
	if s.any {
		dst.Set(reflect.ValueOf(v))
		return nil
	}
	seen := 0
	for _, f := range s.fields {
		at := f.name
		if path != "" {
			at = path + "." + f.name
		}
		m := v.Get(f.name)
		if m.Kind == Absent {
			if f.required {
				return &FieldError{at, "it is required"}
			}
			continue
		}
		seen++
		if e := f.shape.decode(m, dst.Field(f.index), at); e != nil {
			return e
		}
	}
	if seen != len(v.Members) {
		return &FieldError{path, "there is a member that it does not have; it has " + strings.Join(s.Names(), ", ")}
	}
	return nil
}

func (s *Shape) article() string {
	switch s.kind {
	case String:
		return "a string"
	case Number:
		return "a whole number"
	case Bool:
		return "true or false"
	case Array:
		return "an array"
	}
	return "an object"
}
