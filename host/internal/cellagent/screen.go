package cellagent

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// screenTail is how many of the newest bytes of output the last line is
// rendered from.
const screenTail = 8 << 10

// tail keeps the newest screenTail bytes.
type tail struct{ buf []byte }

func (t *tail) add(p []byte) {
	if len(p) >= screenTail {
		t.buf = append(t.buf[:0], p[len(p)-screenTail:]...)
		return
	}
	if over := len(t.buf) + len(p) - screenTail; over > 0 {
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
	t.buf = append(t.buf, p...)
}

// lastLine renders output as a terminal would, far enough to say what the line
// with the cursor shows; when that line is blank, the last one above it that is
// not. Colours, titles and the like are stripped. Trailing blanks stay, for
// they are part of a prompt.
func lastLine(out []byte) string {
	s := screen{line: make([]rune, 0, 128)}
	for len(out) > 0 {
		out = out[s.feed(out):]
	}
	return s.last()
}

type screen struct {
	line  []rune
	col   int
	above []rune // the last line above that is not blank
}

// maxColumn bounds what a cursor movement can make the screen allocate.
const maxColumn = 1024

func (s *screen) last() string {
	if !blank(s.line) {
		return string(s.line)
	}
	return string(s.above)
}

func blank(line []rune) bool {
	return !slices.ContainsFunc(line, func(r rune) bool { return !unicode.IsSpace(r) })
}

// feed takes one character or control sequence off the front.
func (s *screen) feed(p []byte) int {
	switch c := p[0]; {
	case c == '\n' || c == '\v' || c == '\f':
		s.newline()
	case c == '\r':
		s.col = 0
	case c == '\b':
		s.col = max(0, s.col-1)
	case c == '\t':
		s.col = min((s.col/8+1)*8, maxColumn)
	case c == 0x1b:
		return s.escape(p)
	case c < 0x20 || c == 0x7f:
	default:
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 && !utf8.FullRune(p) {
			return len(p) // a character that is not complete yet
		}
		s.put(r)
		return n
	}
	return 1
}

func (s *screen) put(r rune) {
	if s.col >= maxColumn {
		return
	}
	s.pad(s.col)
	if s.col < len(s.line) {
		s.line[s.col] = r
	} else {
		s.line = append(s.line, r)
	}
	s.col++
}

func (s *screen) pad(to int) {
	for len(s.line) < to {
		s.line = append(s.line, ' ')
	}
}

func (s *screen) newline() {
	if !blank(s.line) {
		s.line, s.above = s.above, s.line
	}
	s.line = s.line[:0]
}

func (s *screen) escape(p []byte) int {
	if len(p) < 2 {
		return len(p)
	}
	switch p[1] {
	case '[':
		return s.csi(p)
	case ']', 'P', '_', '^', 'X': // strings, ended by BEL or ESC \
		for i := 2; i < len(p); i++ {
			if p[i] == 0x07 {
				return i + 1
			}
			if p[i] == 0x1b && i+1 < len(p) && p[i+1] == '\\' {
				return i + 2
			}
		}
		return len(p)
	case '(', ')', '*', '+', '#', '%', ' ':
		return min(3, len(p))
	case 'c': // reset
		*s = screen{line: s.line[:0]}
	case 'E':
		s.newline()
		s.col = 0
	}
	return 2
}

func (s *screen) csi(p []byte) int {
	i := 2
	for i < len(p) && p[i] >= 0x20 && p[i] <= 0x3f {
		i++
	}
	if i == len(p) {
		return i
	}
	arg, given := number(p[2:i])
	n := max(1, arg)
	switch p[i] {
	case 'C':
		s.col = min(s.col+n, maxColumn)
	case 'D':
		s.col = max(0, s.col-n)
	case 'G', '`':
		s.col = min(n-1, maxColumn)
	case 'K':
		s.erase(arg)
	case 'P':
		if s.col < len(s.line) {
			s.line = append(s.line[:s.col], s.line[min(s.col+n, len(s.line)):]...)
		}
	case 'H', 'f', 'E', 'F': // to another line
		s.newline()
		s.col = 0
	case 'J':
		if given && arg >= 2 {
			*s = screen{line: s.line[:0]}
		} else {
			s.erase(0)
		}
	}
	return i + 1
}

func (s *screen) erase(what int) {
	switch what {
	case 0:
		s.line = s.line[:min(s.col, len(s.line))]
	case 1:
		for i := 0; i <= s.col && i < len(s.line); i++ {
			s.line[i] = ' '
		}
	case 2:
		s.line = s.line[:0]
	}
}

// number reads the first parameter of a control sequence.
func number(p []byte) (n int, given bool) {
	for _, c := range p {
		if c < '0' || c > '9' {
			break
		}
		n, given = min(n*10+int(c-'0'), maxColumn), true
	}
	return n, given
}
