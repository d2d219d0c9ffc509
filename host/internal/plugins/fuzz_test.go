package plugins

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzLogLine(f *testing.F) {
	f.Add([]byte(`{"@level":"info","@message":"m","@timestamp":"x","k":[1,{"a":null}]}`))
	f.Add([]byte("\x1b[31mred\xff\u202e"))
	f.Add([]byte(`{"@level":"off","@message":"m"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, message, fields := parseLine(raw, false)
		for _, text := range append([]any{message}, fields...) {
			s, ok := text.(string)
			if ok && (!utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })) {
				t.Fatalf("unsafe text %q", s)
			}
		}
		if len(fields)%2 != 0 {
			t.Fatalf("fields do not pair: %v", fields)
		}
		for n := 0; n < len(fields); n += 2 {
			if name := fields[n].(string); name == "plugin" || name == "pid" || strings.HasPrefix(name, "@") {
				t.Fatalf("a plugin may set %q", name)
			}
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|/run/s/plugin1|grpc|" + strings.Repeat("A", 60) + "\n")
	f.Add("7|1|unix|")
	f.Fuzz(func(t *testing.T, line string) {
		fault := checkHandshake("/p", line, "/run/s")
		if fault == nil && (!strings.Contains(line, "/run/s/") || !strings.Contains(line, "grpc")) {
			t.Fatalf("%q was accepted", line)
		}
		if fault != nil && strings.ContainsAny(fault.Error(), "\x1b\n\x00") {
			t.Fatalf("unsafe message %q", fault.Error())
		}
	})
}
