package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/jsontext"
)

// Limits of a call's arguments.
const (
	MaxArgsBytes = 1 << 20
	MaxArgsDepth = 64
)

// ErrArgs says that a call's arguments are no good: not a JSON object, not
// UTF-8, too large or deep, or with a key twice in one object.
var ErrArgs = errors.New("arguments")

// Canonical checks a call's arguments and takes out the white space between
// them. Everything else stays as it came, byte for byte: the spelling of
// numbers and strings and the order of keys. The result is what rules look at,
// fingerprints are taken of, and runs. The error is an ErrArgs that names the
// place and no value.
func Canonical(raw json.RawMessage) (json.RawMessage, error) {
	v, err := parseArgs(raw)
	if err != nil {
		return nil, err
	}
	return v.raw, nil
}

func parseArgs(raw json.RawMessage) (value, error) {
	if len(raw) > MaxArgsBytes {
		return value{}, fmt.Errorf("%w are %d bytes long, at most %d are allowed", ErrArgs, len(raw), MaxArgsBytes)
	}
	if i := invalidUTF8(raw); i >= 0 {
		return value{}, fmt.Errorf("%w are not UTF-8 at byte %d", ErrArgs, i)
	}
	if t := bytes.TrimLeft(raw, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return value{}, fmt.Errorf("%w must be a JSON object", ErrArgs)
	}
	v, err := parseJSON(raw)
	if err != nil {
		return value{}, fmt.Errorf("%w: %w", ErrArgs, err)
	}
	if jsontext.LoneSurrogate(raw) { // it would have the fingerprint of others
		return value{}, fmt.Errorf("%w hold half of a surrogate pair", ErrArgs)
	}
	return v, nil
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	i := 0
	for i < len(b) {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}
