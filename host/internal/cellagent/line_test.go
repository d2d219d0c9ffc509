package cellagent

import (
	"bytes"
	"strings"
	"testing"
)

func TestLongLinesAreHandedOverInPieces(t *testing.T) {
	t.Parallel()
	ends := []byte{'\n', 4}
	for name, writes := range map[string][]string{
		"short":         {"abc\n"},
		"one long":      {strings.Repeat("x", 10_000) + "\n"},
		"in two writes": {strings.Repeat("x", 2000), strings.Repeat("y", 2000) + "\n"},
		"many lines":    {strings.Repeat("line\n", 5000)},
		"just at":       {strings.Repeat("x", maxPending) + "\n", strings.Repeat("x", maxPending+1) + "\n"},
	} {
		var l lineState
		var in, out []byte
		for _, w := range writes {
			in = append(in, w...)
			out = append(out, l.split([]byte(w), 4, ends)...)
		}
		if !bytes.Equal(bytes.ReplaceAll(out, []byte{4}, nil), in) {
			t.Errorf("%s: other bytes", name)
		}
		for i, part := range bytes.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == 4 }) {
			if len(part) > maxPending {
				t.Errorf("%s: piece %d has %d bytes", name, i, len(part))
			}
		}
		// An end-of-file character at the beginning of a line would end the input.
		if bytes.HasPrefix(out, []byte{4}) || bytes.Contains(out, []byte("\n\x04")) || bytes.Contains(out, []byte{4, 4}) {
			t.Errorf("%s: the input is ended", name)
		}
	}
}
