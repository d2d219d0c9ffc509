package gate

import (
	"encoding/json"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/config/pointer"
)

// step is the place among the members that one step of a pointer leads to.
func (v value) step(token string) (int, bool) {
	switch v.kind {
	case object:
		i := slices.Index(v.keys, token)
		return i, i >= 0
	case array:
		i, ok := pointer.Index(token)
		return i, ok && i < len(v.members)
	}
	return 0, false
}

// replace is the value's bytes with the member at the pointer replaced. The
// pointer must lead somewhere.
func (v value) replace(tokens []string, with []byte) []byte {
	if len(tokens) == 0 {
		return with
	}
	i, _ := v.step(tokens[0])
	old := v.members[i]
	part := old.replace(tokens[1:], with)
	start := old.at - v.at
	out := make([]byte, 0, len(v.raw)-len(old.raw)+len(part))
	out = append(out, v.raw[:start]...)
	out = append(out, part...)
	return append(out, v.raw[start+len(old.raw):]...)
}

// cty is the value for conditions, which see strings in normal form C and
// numbers of at most condition.MaxDigits digits.
func (v value) cty() (cty.Value, error) {
	switch v.kind {
	case null:
		return cty.NullVal(cty.DynamicPseudoType), nil
	case boolean:
		return cty.BoolVal(v.raw[0] == 't'), nil
	case number:
		return condition.Number(string(v.raw)), nil
	case text:
		return cty.StringVal(decodeString(v.raw)), nil
	case array:
		out := make([]cty.Value, len(v.members))
		for i, m := range v.members {
			var err error
			if out[i], err = m.cty(); err != nil {
				return cty.NilVal, err
			}
		}
		return cty.TupleVal(out), nil
	}
	out := make(map[string]cty.Value, len(v.keys))
	for i, k := range v.keys {
		m, err := v.members[i].cty()
		if err != nil {
			return cty.NilVal, err
		}
		out[k] = m
	}
	return condition.Object(out)
}

// merge is the bytes of v with a patch merged into it: objects member by
// member, anything else replaced. What the patch does not name keeps its bytes
// and its order; new members come last.
func (v value) merge(patch value) []byte {
	if v.kind != object || patch.kind != object {
		return patch.raw
	}
	out := []byte{'{'}
	add := func(key string, raw []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, encodeString(key)...), ':'), raw...)
	}
	at := 1 // of the next key's own bytes
	for i, key := range v.keys {
		m := v.members[i]
		start := m.at - v.at
		if i > 0 {
			at++ // the comma
		}
		spelt := v.raw[at : start-1]
		at = start + len(m.raw)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, spelt...), ':')
		if j := slices.Index(patch.keys, key); j >= 0 {
			out = append(out, m.merge(patch.members[j])...)
		} else {
			out = append(out, m.raw...)
		}
	}
	for j, key := range patch.keys {
		if !slices.Contains(v.keys, key) {
			add(key, patch.members[j].raw)
		}
	}
	return append(out, '}')
}

func encodeString(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // not reached: strings are JSON-ready
	}
	return b
}
