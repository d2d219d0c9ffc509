package plugins

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes text from a plugin safe for a log, a terminal and a status page:
// one line, valid UTF-8, no control or formatting characters (each is shown as
// an escape), at most max bytes.
func clean(text string, max int) string {
	var b strings.Builder
	for n, r := range text {
		if b.Len() >= max {
			fmt.Fprintf(&b, "…(+%d bytes)", len(text)-n)
			break
		}
		_, width := utf8.DecodeRuneInString(text[n:])
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, text[n])
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
