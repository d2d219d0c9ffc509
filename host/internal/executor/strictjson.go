package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deeply a body may be nested.
const maxDepth = 200

// checkJSON refuses what encoding/json would quietly repair or swallow: bytes
// that are not UTF-8 and lone surrogates (two different ids would become one),
// members that occur twice (who wins depends on the reader), trailing text, and
// nesting beyond maxDepth.
func checkJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return &fieldError{Why: "is not UTF-8"}
	}
	if !json.Valid(raw) {
		return &fieldError{Why: "is not JSON"}
	}
	if loneSurrogate(raw) {
		return &fieldError{Why: "holds half of a surrogate pair"}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err := walk(dec, "", 0)
	if errors.Is(err, errTooDeep) {
		return &fieldError{Why: errTooDeep.Error()}
	}
	return err
}

// walk reads one value and refuses a member that occurs twice.
func walk(dec *json.Decoder, path string, depth int) error {
	tok, err := dec.Token()
	if err != nil {
		return &fieldError{Why: "is not JSON"}
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	if depth >= maxDepth {
		return errTooDeep
	}
	seen := map[string]bool{}
	for dec.More() {
		at := path
		if delim == '{' {
			key, err := dec.Token()
			if err != nil {
				return &fieldError{Why: "is not JSON"}
			}
			name, _ := key.(string)
			if path != "" {
				at += "."
			}
			at = cut(at+name, 200)
			if seen[name] {
				return &fieldError{Field: at, Why: "occurs twice"}
			}
			seen[name] = true
		}
		if err := walk(dec, at, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing bracket
	return err
}

// loneSurrogate looks at the \u escapes of valid JSON.
func loneSurrogate(raw []byte) bool {
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
