// Package screen shows a session's output as a terminal would, for people who
// look at it in the Control Room: rows of text with resolved colours, never
// markup. It imports a terminal emulator and the standard library.
//
// The one idea: what an agent writes is hostile. The emulator runs on the host,
// with bounds on what a sequence can cost, and what leaves it is plain text that
// can be read: nothing concealed, no colour that vanishes in its background, no
// link, no title, no reply to the process.
package screen

import (
	"fmt"
	"io"
	"slices"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

const (
	// maxCols and maxRows bound what a resize can make the host allocate.
	maxCols, maxRows = 400, 200
	// keepLines is how many lines that scrolled off are held until they are taken.
	keepLines = 1000
)

// Run is a piece of a row in one style.
type Run struct {
	Text string `json:"t"`
	Fg   string `json:"f,omitempty"` // #rrggbb; empty: the terminal's own
	Bg   string `json:"b,omitempty"`
	Bits int    `json:"s,omitempty"` // Bold | Italic | Underline | Strike
}

// The bits of a run's style.
const (
	Bold = 1 << iota
	Italic
	Underline
	Strike
)

// Row is one line of the terminal; blanks at its end are left out.
type Row []Run

// Line is a row at its place, 0 is the top.
type Line struct {
	Y    int `json:"y"`
	Runs Row `json:"r"`
}

// Cursor is where the next character goes; Hidden when the program hides it.
type Cursor struct {
	X      int  `json:"x"`
	Y      int  `json:"y"`
	Hidden bool `json:"hidden,omitempty"`
}

// Frame is what has changed since the last one.
type Frame struct {
	Cols   int    `json:"cols"`
	Rows   int    `json:"rows"`
	Full   bool   `json:"full,omitempty"` // Lines are the whole screen
	Gone   []Row  `json:"gone,omitempty"` // lines that scrolled off the top, oldest first
	Lines  []Line `json:"lines"`
	Cursor Cursor `json:"cursor"`
}

// Screen is one rendered terminal; it is for one goroutine. Close it.
type Screen struct {
	emu     *vt.Emulator
	shown   []Row
	full    bool
	lastCR  bool // the last byte was a carriage return
	sawCRLF bool // a terminal has made the output: its line feeds are what they are
	broken  error
}

// New makes a screen of the size, 80 by 24 where it is not known.
func New(cols, rows int) *Screen {
	if cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	s := &Screen{emu: vt.NewEmulator(min(cols, maxCols), min(rows, maxRows)), full: true}
	s.emu.SetScrollbackSize(keepLines)
	// Seven bytes must not print 65,535 characters, or go through as many tabs:
	// what is more than a row is taken, and dropped.
	for _, repeats := range "bIZ" {
		s.emu.RegisterCsiHandler(int(repeats), func(p ansi.Params) bool {
			n, _, _ := p.Param(0, 1)
			return n > s.emu.Width()
		})
	}
	go func() { _, _ = io.Copy(io.Discard, s.emu) }() // its replies go nowhere; Close ends it
	return s
}

// Close frees the screen. The emulator's own Close races with whoever reads its
// replies; the end of the pipe does not.
func (s *Screen) Close() {
	if pipe, ok := s.emu.InputPipe().(io.Closer); ok {
		_ = pipe.Close()
	}
}

// Write takes output. Once the emulator has failed on it (a fault of the
// library) every write gives that error, and the screen stays as it was.
func (s *Screen) Write(p []byte) (err error) {
	if s.broken != nil {
		return s.broken
	}
	defer func() {
		if v := recover(); v != nil {
			s.broken = fmt.Errorf("the terminal emulator failed on this output: %v", v)
			err = s.broken
		}
	}()
	_, err = s.emu.Write(s.lines(p))
	return err
}

// lines makes CR LF of LF where no terminal did: output of pipes has bare line
// feeds from the start.
func (s *Screen) lines(p []byte) []byte {
	if s.sawCRLF || !slices.Contains(p, '\n') || s.emu.IsAltScreen() {
		s.note(p)
		return p
	}
	out := make([]byte, 0, len(p)+len(p)/16)
	for _, b := range p {
		if b == '\n' && !s.sawCRLF {
			if s.lastCR {
				s.sawCRLF = true
			} else {
				out = append(out, '\r')
			}
		}
		s.lastCR = b == '\r'
		out = append(out, b)
	}
	return out
}

func (s *Screen) note(p []byte) {
	if len(p) > 0 {
		s.lastCR = p[len(p)-1] == '\r'
	}
}

// Resize gives the terminal another size; the next frame is a full one.
func (s *Screen) Resize(cols, rows int) {
	cols, rows = min(max(cols, 2), maxCols), min(max(rows, 1), maxRows)
	if cols == s.emu.Width() && rows == s.emu.Height() {
		return
	}
	defer func() { _ = recover() }()
	s.emu.Resize(cols, rows)
	s.full = true
}

// Frame gives what has changed since the last one; false when nothing has.
func (s *Screen) Frame() (Frame, bool) {
	f := Frame{Cols: s.emu.Width(), Rows: s.emu.Height(), Full: s.full, Lines: []Line{}}
	for _, line := range s.emu.Scrollback().Lines() {
		f.Gone = append(f.Gone, row(len(line), func(x int) *uv.Cell { return &line[x] }))
	}
	s.emu.ClearScrollback()
	if s.full {
		s.shown = make([]Row, f.Rows)
	}
	for y := range f.Rows {
		r := row(f.Cols, func(x int) *uv.Cell { return s.emu.CellAt(x, y) })
		if s.full || !slices.Equal(r, s.shown[y]) {
			s.shown[y] = r
			f.Lines = append(f.Lines, Line{y, r})
		}
	}
	at := s.emu.CursorPosition()
	f.Cursor = Cursor{X: at.X, Y: at.Y, Hidden: s.emu.CursorHidden()}
	changed := s.full || len(f.Lines) > 0 || len(f.Gone) > 0
	s.full = false
	return f, changed
}

// row joins cells of one style to runs.
func row(cols int, cell func(x int) *uv.Cell) Row {
	out := Row{}
	var text strings.Builder
	var now Run
	flush := func() {
		if text.Len() > 0 {
			now.Text = text.String()
			out = append(out, now)
			text.Reset()
		}
	}
	for x := 0; x < cols; {
		c := cell(x)
		content, width, style := " ", 1, Run{}
		if c != nil && c.Content != "" {
			content, width, style = c.Content, max(c.Width, 1), styled(c.Style)
		} else if c != nil {
			style = styled(c.Style)
		}
		if style != now {
			flush()
			now = style
		}
		text.WriteString(printable(content))
		x += width
	}
	flush()
	return trim(out)
}

// trim cuts blanks at the end that nobody can see.
func trim(r Row) Row {
	for len(r) > 0 {
		last := &r[len(r)-1]
		if last.Bg != "" || last.Bits&(Underline|Strike) != 0 {
			return r
		}
		if last.Text = strings.TrimRight(last.Text, " "); last.Text != "" {
			return r
		}
		r = r[:len(r)-1]
	}
	return r
}

// printable keeps what turns text around or hides in it from doing so.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return '\ufffd'
		case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c:
			return '\ufffd'
		}
		return r
	}, s)
}
