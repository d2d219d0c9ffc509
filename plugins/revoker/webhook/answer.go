package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// literalTrue says whether body is one JSON object with a member of this name
// that is the literal true.
func literalTrue(body []byte, member string) (yes bool, why string) {
	got, why := literalBool(body, member)
	if why == "" && !got {
		why = member + " is false"
	}
	return got && why == "", why
}

// literalBool reads a boolean member of a JSON object. why says what is wrong
// with the body, without a word of it. Member names count as they are written,
// and a name that comes twice in any object spoils the whole: two readers
// might take one each.
func literalBool(body []byte, member string) (value bool, why string) {
	if !utf8.Valid(body) {
		return false, "the body is not UTF-8"
	}
	if !json.Valid(body) { // the decoder's tokens are laxer about commas
		return false, errBroken.Error()
	}
	d := json.NewDecoder(bytes.NewReader(body))
	r := &reader{d: d, member: member}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, "the body is no JSON object"
	}
	if err := r.object(1); err != nil {
		return false, err.Error()
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return false, "there is something behind the JSON object"
	}
	value, ok := r.found.(bool)
	switch {
	case !r.seen:
		return false, "there is no member " + member
	case !ok:
		return false, member + " is no boolean"
	}
	return value, ""
}

// maxDepth bounds how deep an answer may be nested.
const maxDepth = 32

var (
	errBroken = errors.New("the body is broken JSON")
	errDeep   = fmt.Errorf("the body is nested deeper than %d", maxDepth)
	errTwice  = errors.New("a member of the body comes twice")
)

// reader walks a JSON document token by token.
type reader struct {
	d      *json.Decoder
	member string // wanted, of the outermost object

	seen  bool
	found any // its value, when that is no object or array
}

func (r *reader) object(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	names := map[string]bool{}
	for r.d.More() {
		t, err := r.d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return errBroken
		}
		if names[name] {
			return errTwice
		}
		names[name] = true
		v, err := r.value(depth)
		if err != nil {
			return err
		}
		if depth == 1 && name == r.member {
			r.seen, r.found = true, v
		}
	}
	return r.close()
}

func (r *reader) array(depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	for r.d.More() {
		if _, err := r.value(depth); err != nil {
			return err
		}
	}
	return r.close()
}

func (r *reader) close() error {
	if _, err := r.d.Token(); err != nil {
		return errBroken
	}
	return nil
}

// value reads the next value; nil for an object, an array and null.
func (r *reader) value(depth int) (any, error) {
	t, err := r.d.Token()
	if err != nil {
		return nil, errBroken
	}
	switch t {
	case json.Delim('{'):
		return nil, r.object(depth + 1)
	case json.Delim('['):
		return nil, r.array(depth + 1)
	}
	return t, nil
}
