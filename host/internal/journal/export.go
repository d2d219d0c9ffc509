package journal

import (
	"bufio"
	"io"
)

// Writer writes an export: JSON lines, one event per line, the payload as the
// exact hashed text. The first event carries the journal's id, so the file
// alone is enough to check the chain.
type Writer struct {
	w   *bufio.Writer
	buf []byte
}

// NewWriter writes to w. Flush must be called at the end.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriterSize(w, 64<<10)} }

// Write adds one event.
func (w *Writer) Write(ev *Event) error {
	w.buf = append(ev.AppendExport(w.buf[:0]), '\n')
	_, err := w.w.Write(w.buf)
	return err
}

// Flush writes out what is buffered.
func (w *Writer) Flush() error { return w.w.Flush() }
