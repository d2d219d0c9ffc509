package envelope

import (
	"bytes"
	"fmt"
)

// Detail is how much of the payloads an advertised envelope spells out.
type Detail uint8

// The details. Full repeats the schema of each payload; Brief says of it that it
// is an object, the members of which stand at the canonical tool. A list in
// which every tool were full would be half as large again.
const (
	Brief Detail = iota
	Full
)

// Schema writes the envelope of a tool as one property of its arguments, with
// the payloads of the sidecars as definitions beside it. closing says whether
// the kinds that end something are offered. Both are empty when no member is
// allowed.
//
// The grammar takes every kind on every tool, and admission refuses the closing
// ones where they do not belong; the schema offers only what is admitted.
func (g *Grammar) Schema(allowed Fields, closing bool, detail Detail) (property, defs []byte) {
	if allowed == 0 {
		return nil, nil
	}
	var p, d bytes.Buffer
	p.WriteString(`"` + Member + `":{"type":"object","properties":{`)
	sep := ""
	add := func(f Fields, text string) {
		if allowed&f != 0 {
			p.WriteString(sep + text)
			sep = ","
		}
	}
	add(Control, `"control":{"type":"object","properties":{"before":`+choice(Before(), detail)+`,"after_success":`+choice(After(closing), detail)+`},"additionalProperties":false}`)
	add(Record, `"record":{"type":"string"}`)
	add(Ack, fmt.Sprintf(`"ack":{"type":"array","maxItems":%d,"items":{"type":"string"}}`, MaxAck))
	add(Resolve, `"resolve":{"type":"object","properties":{"message_id":{"type":"string"},"resolution":{"type":"string"}},"additionalProperties":false,"required":["message_id","resolution"]}`)
	add(Context, fmt.Sprintf(`"context":{"type":"array","maxItems":%d,"items":{"type":"string"}}`, MaxContext))
	p.WriteString(`},"additionalProperties":false}`)
	if allowed&Control == 0 || detail == Brief {
		return p.Bytes(), nil
	}
	sep = "{"
	for _, k := range append(Before(), After(closing)...) {
		fmt.Fprintf(&d, `%s"%s":%s`, sep, k, g.Shape(k).Schema(false))
		sep = ","
	}
	d.WriteByte('}')
	return p.Bytes(), d.Bytes()
}

// choice is a phase: an object with exactly one of the kinds.
func choice(kinds []Kind, detail Detail) string {
	var props, one bytes.Buffer
	for i, k := range kinds {
		if i > 0 {
			props.WriteByte(',')
			one.WriteByte(',')
		}
		if detail == Full {
			fmt.Fprintf(&props, `"%s":{"$ref":"#/$defs/%s"}`, k, k)
		} else {
			fmt.Fprintf(&props, `"%s":{"type":"object"}`, k)
		}
		fmt.Fprintf(&one, `{"required":["%s"]}`, k)
	}
	return `{"type":"object","properties":{` + props.String() + `},"additionalProperties":false,"oneOf":[` + one.String() + `]}`
}
