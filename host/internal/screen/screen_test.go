package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func frame(t *testing.T, s *Screen) Frame {
	t.Helper()
	f, _ := s.Frame()
	return f
}

func text(r Row) string {
	var b strings.Builder
	for _, run := range r {
		b.WriteString(run.Text)
	}
	return b.String()
}

// shown is the screen as plain lines.
func shown(t *testing.T, cols, rows int, out string) []string {
	t.Helper()
	s := New(cols, rows)
	defer s.Close()
	if err := s.Write([]byte(out)); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range frame(t, s).Lines {
		lines = append(lines, text(l.Runs))
	}
	return lines
}

func TestWhatAProgramDraws(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, out, want string }{
		{"lines of a terminal", "one\r\ntwo", "one|two||"},
		{"lines of a pipe", "one\ntwo\nthree", "one|two|three|"},
		{"bare line feeds once a terminal has spoken", "a\r\nb\nc", "a|b| c|"},
		{"carriage return", "loading 10%\rloading 99%", "loading 99%|||"},
		{"cursor movement", "\x1b[2;3Hx\x1b[Hy", "y|  x||"},
		{"erase", "secret\x1b[2K\rclean", "clean|||"},
		{"wide characters", "日本\r\nx", "日本|x||"},
		{"combining marks", "e\u0301!", "e\u0301!|||"},
		{"alternate screen", "shell\r\n\x1b[?1049htui", "tui|||"},
		{"bad UTF-8 is left out", "a\xff\xfeb", "ab|||"},
		{"titles and links are nothing", "\x1b]0;title\x07\x1b]8;;http://evil.example/\x07click\x1b]8;;\x07", "click|||"},
		{"text that turns around", "a\u202eb", "ab|||"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(shown(t, 20, 4, c.out), "|"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyWhatChangedIsSent(t *testing.T) {
	t.Parallel()
	s := New(20, 3)
	defer s.Close()
	_ = s.Write([]byte("a\r\nb\r\nc"))
	if f := frame(t, s); !f.Full || len(f.Lines) != 3 {
		t.Fatalf("the first frame: %+v", f)
	}
	if f, changed := s.Frame(); changed {
		t.Errorf("nothing was written: %+v", f)
	}
	_ = s.Write([]byte("!"))
	f := frame(t, s)
	if f.Full || len(f.Lines) != 1 || f.Lines[0].Y != 2 || text(f.Lines[0].Runs) != "c!" {
		t.Errorf("one row changed: %+v", f)
	}
	_ = s.Write([]byte("\r\nd"))
	if f = frame(t, s); len(f.Gone) != 1 || text(f.Gone[0]) != "a" {
		t.Errorf("a line that scrolled off: %+v", f)
	}
	s.Resize(30, 5)
	if f = frame(t, s); !f.Full || f.Cols != 30 || f.Rows != 5 {
		t.Errorf("after a resize: %+v", f)
	}
}

// Text that a program wants to hide from whoever looks is shown.
func TestNothingIsHidden(t *testing.T) {
	t.Parallel()
	for _, style := range []string{"30;40", "8", "38;2;17;22;29", "97;107", "7;38;2;17;22;29", "38;5;16", "48;5;231;37", "38;2;20;20;20;48;2;25;25;25"} {
		s := New(40, 2)
		_ = s.Write([]byte("\x1b[" + style + "mhidden\x1b[0m"))
		f := frame(t, s)
		s.Close()
		runs := f.Lines[0].Runs
		if len(runs) == 0 || runs[0].Text != "hidden" {
			t.Fatalf("%s: %+v", style, runs)
		}
		if c := Contrast(or(runs[0].Fg, Foreground), or(runs[0].Bg, Background)); c < readable {
			t.Errorf("%s: contrast %.2f of %+v", style, c, runs[0])
		}
	}
}

func TestTheColoursCanBeRead(t *testing.T) {
	t.Parallel()
	s := New(10, 1)
	defer s.Close()
	for i := range 256 {
		_ = s.Write(fmt.Appendf(nil, "\x1bc\x1b[38;5;%dm%c", i, 'a'+i%26))
		r := frame(t, s).Lines[0].Runs[0]
		if c := Contrast(or(r.Fg, Foreground), Background); c < readable {
			t.Errorf("colour %d is %s: contrast %.2f", i, r.Fg, c)
		}
	}
}

func TestStyles(t *testing.T) {
	t.Parallel()
	s := New(40, 1)
	defer s.Close()
	_ = s.Write([]byte("\x1b[1mb\x1b[0;3mi\x1b[0;4mu\x1b[0;9ms\x1b[0;31mr\x1b[0;44m \x1b[0m"))
	got := frame(t, s).Lines[0].Runs
	want := Row{{"b", "", "", Bold}, {"i", "", "", Italic}, {"u", "", "", Underline}, {"s", "", "", Strike}, {"r", basic[1], "", 0}}
	if len(got) != 6 || fmt.Sprint(got[:5]) != fmt.Sprint(want) || got[5].Bg != basic[4] {
		t.Errorf("%+v", got)
	}
}

// Sequences that ask for a reply must not hold the emulator up, and a few bytes
// must not cost minutes.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	s := New(80, 24)
	defer s.Close()
	for _, seq := range []string{"\x1b[c", "\x1b[>c", "\x1b[6n", "\x1b[?6n", "\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b[?2048h", "\x1b[?25$p",
		"x\x1b[65535b", "\x1b[65535L", "\x1b[65535M", "\x1b[65535S", "\x1b[65535T", "\x1b[65535@", "\x1b[65535P", "\x1b[65535X",
		"\x1b[65535;65535r", "\x1b[65535I", "\x1b[65535Z", "\x1b[8;65535;65535t", "\x1b[65535;65535H", "\x1b#8", "\x1bc"} {
		if err := s.Write([]byte(strings.Repeat(seq, 100))); err != nil {
			t.Errorf("%q: %v", seq, err)
		}
	}
	f := frame(t, s)
	if f.Cols != 80 || f.Rows != 24 || len(f.Gone) > keepLines {
		t.Errorf("%d by %d, %d lines gone", f.Cols, f.Rows, len(f.Gone))
	}
	s2 := New(80, 24)
	defer s2.Close()
	_ = s2.Write([]byte("x\x1b[65535b"))
	if got := text(frame(t, s2).Lines[0].Runs); got != "x" {
		t.Errorf("a repeat of 65,535 printed %q", got)
	}
}

// An unfinished string sequence is bounded by the emulator; random bytes never
// panic, and a panic of the library would be an error.
func TestRandomBytes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"\x1b[", "\x1b]", "\x1bP", "\x1b(0", ";", "?", "h", "l", "m", "H", "J", "K", "1049", "38;2;", "65535", "日", "\u0301", "\r\n", "\t", "\x9b", "\x0e"}
	for range 30 {
		s := New(1+rnd.IntN(120), 1+rnd.IntN(50))
		var b bytes.Buffer
		for range 200 {
			if rnd.IntN(3) == 0 {
				b.WriteByte(byte(rnd.IntN(256)))
			} else {
				b.WriteString(pieces[rnd.IntN(len(pieces))])
			}
		}
		if err := s.Write(b.Bytes()); err != nil {
			t.Errorf("%q: %v", b.String(), err)
		}
		s.Resize(1+rnd.IntN(300), 1+rnd.IntN(100))
		frame(t, s)
		s.Close()
	}
}
