// Package jsontext looks at JSON as it was written, for readers that must not
// take two different texts for one. It imports nothing of the project.
package jsontext

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Members reads an object; numbers keep their text (json.Number).
func Members(raw []byte) (members map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err = dec.Decode(&members)
	return members, err
}

// Write writes a value in one way: members in order, each string in its shortest
// form, numbers as they are.
func Write(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// LoneSurrogate says whether a \u escape of valid JSON is half of a surrogate
// pair: encoding/json makes the same character of all of them, so that two texts
// that differ would become one.
func LoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		u, ok := escapedUnit(raw[i:])
		if !ok {
			i++ // the escaped character
			continue
		}
		i += 5
		switch {
		case u >= 0xDC00 && u <= 0xDFFF:
			return true
		case u >= 0xD800 && u <= 0xDBFF:
			low, ok := escapedUnit(raw[i+1:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

// escapedUnit reads "\uXXXX" at the start of b.
func escapedUnit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	return u, err == nil
}
