package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Redact is the arguments as they may be recorded and shown: the value at the
// pointer of every redact rule for the tool is replaced by
// {"redacted":"sha256:HEX"}, where HEX is SHA-256(salt || the value's compact
// JSON). The rest keeps its bytes. Arguments that are no good are replaced as a
// whole, if any rule is for the tool or if they are not JSON.
func (r *Rules) Redact(tool string, args json.RawMessage) json.RawMessage {
	rules := r.redact.rules(tool)
	v, err := parseArgs(args)
	if err != nil {
		if len(rules) == 0 && json.Valid(args) {
			return args
		}
		return r.redacted(args)
	}
	paths := make([][]string, len(rules))
	for n, i := range rules {
		paths[n] = r.g.Redact[i].Pointer.Tokens()
	}
	return r.hide(v, paths)
}

// Hide is Redact of what no rule needs to name: the values at the given paths,
// each the names on the way to it.
func (r *Rules) Hide(args json.RawMessage, paths ...[]string) json.RawMessage {
	v, err := parseArgs(args)
	if err != nil {
		return args // Redact has replaced what is no good
	}
	return r.hide(v, paths)
}

func (r *Rules) hide(v value, paths [][]string) json.RawMessage {
	whole := v.raw
	for _, tokens := range paths {
		at, ok := v.find(tokens)
		if !ok {
			continue
		}
		next, err := parseArgs(v.replace(tokens, r.redacted(at.raw)))
		if err != nil {
			return r.redacted(whole) // grown too large
		}
		v = next
	}
	return v.raw
}

func (r *Rules) redacted(raw []byte) json.RawMessage {
	h := sha256.New()
	h.Write(r.salt)
	h.Write(raw)
	return json.RawMessage(`{"redacted":"sha256:` + hex.EncodeToString(h.Sum(nil)) + `"}`)
}
