package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/jsontext"
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
	if jsontext.LoneSurrogate(raw) {
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
