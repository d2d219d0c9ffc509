package cellagent

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// maxPending is how much of a line goes to a terminal in canonical mode before
// an end-of-file character is put in. The kernel keeps at most 4,095 bytes of a
// line that has not ended and silently drops the rest. An end-of-file character
// behind the first byte of a line does not end anything: it hands what is there
// to the reader at once and vanishes. So a program that reads lines gets the
// long line whole, in several reads.
const maxPending = 2048

// lineState follows the line that is being typed into a terminal.
type lineState struct {
	pending int // bytes since the line began, or since they were handed over
}

// prepare turns a frame into what is to be written to the terminal.
func (l *lineState) prepare(term *os.File, e *entry) []byte {
	var t *unix.Termios
	err := control(term, func(fd int) (err error) {
		t, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	if err != nil || t.Lflag&unix.ICANON == 0 {
		l.pending = 0
		if e.eof {
			return []byte{0x04} // what the reader makes of it is its own affair
		}
		return e.data
	}
	eof := t.Cc[unix.VEOF]
	if e.eof {
		out := []byte{eof}
		if l.pending > 0 {
			out = append(out, eof) // the first one only hands the line over
		}
		l.pending = 0
		return out
	}
	return l.split(e.data, eof, enders(t))
}

// enders are the characters that end a line.
func enders(t *unix.Termios) []byte {
	ends := []byte{'\n'}
	if t.Iflag&unix.ICRNL != 0 {
		ends = append(ends, '\r')
	}
	for _, c := range []uint8{t.Cc[unix.VEOF], t.Cc[unix.VEOL], t.Cc[unix.VEOL2]} {
		if c != 0 {
			ends = append(ends, c)
		}
	}
	return ends
}

func (l *lineState) split(data []byte, eof byte, ends []byte) []byte {
	if l.pending+len(data) <= maxPending || eof == 0 {
		l.follow(data, ends)
		return data
	}
	out := make([]byte, 0, len(data)+len(data)/maxPending+1)
	for _, c := range data {
		if l.pending >= maxPending && bytes.IndexByte(ends, c) < 0 {
			out = append(out, eof)
			l.pending = 0
		}
		out = append(out, c)
		l.follow([]byte{c}, ends)
	}
	return out
}

func (l *lineState) follow(data []byte, ends []byte) {
	if i := bytes.LastIndexAny(data, string(ends)); i >= 0 {
		l.pending = len(data) - 1 - i
	} else {
		l.pending += len(data)
	}
}
