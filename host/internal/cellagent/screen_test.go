package cellagent

import (
	"strings"
	"testing"
)

func TestLastLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"empty":                 {"", ""},
		"plain":                 {"one\r\ntwo", "two"},
		"prompt with newline":   {"one\r\nProceed?\r\n\r\n", "Proceed?"},
		"trailing blank stays":  {"Name: ", "Name: "},
		"carriage return":       {"progress 10%\rprogress 99%", "progress 99%"},
		"shorter over longer":   {"abcdef\rxy", "xycdef"},
		"erased line":           {"abcdef\r\x1b[Kxy", "xy"},
		"erase to the left":     {"abcdef\x1b[3D\x1b[1Kz", "   zef"},
		"erase all":             {"abcdef\x1b[2K\rnew", "new"},
		"backspace":             {"passwore\bd: ", "password: "},
		"backspace at start":    {"\b\bok", "ok"},
		"tab":                   {"a\tb", "a       b"},
		"colours":               {"\x1b[1;32mok\x1b[0m? ", "ok? "},
		"title":                 {"\x1b]0;title\x07$ ", "$ "},
		"title with ST":         {"\x1b]0;title\x1b\\$ ", "$ "},
		"title never ended":     {"text\x1b]0;title", "text"},
		"cursor left and right": {"ac\x1b[Dbc\x1b[2CX", "abc  X"},
		"column":                {"abc\x1b[1GX", "Xbc"},
		"clear screen":          {"old\r\nold\x1b[2J\x1b[Hnew", "new"},
		"below":                 {"keep this\x1b[J", "keep this"},
		"charset":               {"\x1b(Bplain", "plain"},
		"utf-8":                 {"Weiter? (ja/nein) ✓ é", "Weiter? (ja/nein) ✓ é"},
		"half a character":      {"ok \xe2\x9c", "ok "},
		"not utf-8":             {"a\xffb", "a\ufffdb"},
		"half a sequence":       {"ok \x1b[3", "ok "},
		"bell":                  {"\x07ding", "ding"},
		"delete characters":     {"abcdef\x1b[4D\x1b[2P", "abef"},
		"bracketed paste":       {"\x1b[?2004h$ ", "$ "},
		"huge column":           {"\x1b[99999999Cx", ""},
	} {
		got := lastLine([]byte(tc.in))
		if name == "huge column" {
			got = strings.TrimSpace(got)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestTailKeepsTheNewest(t *testing.T) {
	t.Parallel()
	var tl tail
	var all []byte
	for i := range 500 {
		p := []byte(strings.Repeat(string(rune('a'+i%26)), i*7%9000))
		tl.add(p)
		all = append(all, p...)
		if want := all[max(0, len(all)-screenTail):]; string(tl.buf) != string(want) {
			t.Fatalf("after %d: %d bytes, want %d, or other ones", i, len(tl.buf), len(want))
		}
	}
}

func FuzzLastLine(f *testing.F) {
	f.Add([]byte("a\x1b[3;4Hb\x1b]0;x\x07\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > screenTail {
			b = b[:screenTail]
		}
		if l := lastLine(b); len(l) > 4*maxColumn+16 || strings.ContainsAny(l, "\x1b\n\r") {
			t.Errorf("%q", l)
		}
	})
}
