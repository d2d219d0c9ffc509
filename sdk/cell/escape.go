package cell

import (
	"bytes"
	"io"
)

// escaper is the host's way out: every mark becomes mark, markLiteral. It is
// not safe for concurrent use; yamux writes from one goroutine.
type escaper struct {
	w   io.Writer
	buf []byte
}

// Write never splits an escape over two writes to the stream.
func (e *escaper) Write(p []byte) (int, error) {
	if bytes.IndexByte(p, mark) < 0 {
		return e.w.Write(p)
	}
	buf := e.buf[:0]
	for rest := p; ; {
		i := bytes.IndexByte(rest, mark)
		if i < 0 {
			buf = append(buf, rest...)
			break
		}
		buf = append(buf, rest[:i+1]...)
		buf = append(buf, markLiteral)
		rest = rest[i+1:]
	}
	if e.buf = nil; cap(buf) <= keepBuffer {
		e.buf = buf
	}
	if _, err := e.w.Write(buf); err != nil {
		return 0, err // how much of p went out is of no use to yamux
	}
	return len(p), nil
}
