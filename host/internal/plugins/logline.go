package plugins

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	hclog "github.com/hashicorp/go-hclog"
)

// Bounds on the fields of one line.
const (
	maxFields     = 16
	maxFieldName  = 64
	maxFieldValue = 4 << 10
)

// parseLine reads a line of hclog's JSON; any other line is its own message.
// Whatever a plugin claims, the fields that the host stamps stay the host's.
func parseLine(raw []byte, inPanic bool) (hclog.Level, string, []any) {
	plain := hclog.Info
	if inPanic {
		plain = hclog.Error
	}
	if len(raw) == 0 || raw[0] != '{' {
		return plain, clean(string(raw), maxLogLine), nil
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil || d.More() {
		return plain, clean(string(raw), maxLogLine), nil
	}
	message, isText := fields["@message"].(string)
	word, hasLevel := fields["@level"].(string)
	level := hclog.LevelFromString(word)
	if !isText || !hasLevel || level == hclog.NoLevel || level == hclog.Off {
		return plain, clean(string(raw), maxLogLine), nil
	}
	var out []any
	if module, ok := fields["@module"].(string); ok {
		out = append(out, "module", clean(module, maxFieldValue))
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	kept := 0
	for _, name := range names {
		if name[:min(1, len(name))] == "@" {
			continue
		}
		if kept++; kept > maxFields {
			out = append(out, "cut_fields", len(names)-maxFields)
			break
		}
		out = append(out, fieldName(name), fieldValue(fields[name]))
	}
	return level, clean(message, maxLogLine), out
}

func fieldName(name string) string {
	if name == "" || len(name) > maxFieldName || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	}) {
		return "field"
	}
	switch name {
	case "plugin", "pid", "module", "cut_bytes", "cut_fields", "timestamp":
		return name + "_"
	}
	return name
}

func fieldValue(v any) any {
	switch x := v.(type) {
	case nil, bool:
		return x
	case json.Number:
		return clean(x.String(), maxFieldName)
	case string:
		return clean(x, maxFieldValue)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return clean(string(text), maxFieldValue)
}
