package cellagent

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// readOutput serves one output stream that the host has opened. How fast the
// host reads it is the stream's own affair: yamux holds back this goroutine and
// nobody else.
func (a *Agent) readOutput(stream *yamux.Stream) {
	defer stream.Close()
	_ = stream.SetReadDeadline(time.Now().Add(openTime))
	var h cellv1.StreamHeader
	if err := cell.NewDecoder(stream).Decode(&h); err != nil || h.GetReadOutput() == nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	s, err := a.session(h.GetReadOutput().GetSessionId())
	if err != nil {
		return // the end of the stream before any frame says so
	}
	left := make(chan struct{})
	go func() { // the host closes its end to say that it has enough
		defer close(left)
		_, _ = io.Copy(io.Discard, stream)
		_ = stream.SetWriteDeadline(time.Unix(1, 0))
	}()
	follow(s.out, h.GetReadOutput().GetFrom(), cell.NewEncoder(stream), left)
	_ = stream.Close()
	<-left
}

// follow sends output from an offset on until it ends, the host has left, or
// the connection is lost.
func follow(out *buffer, at uint64, enc *cell.Encoder, left <-chan struct{}) {
	buf := make([]byte, blockSize)
	for {
		p := out.read(at, buf)
		if p.from > at {
			gap := &cellv1.Gap{From: at, To: p.from}
			if enc.Encode(&cellv1.OutputFrame{Frame: &cellv1.OutputFrame_Gap{Gap: gap}}) != nil {
				return
			}
		}
		at = p.from
		switch {
		case p.n > 0:
			data := &cellv1.OutputData{Stream: p.stream, Offset: at, Data: buf[:p.n]}
			if enc.Encode(&cellv1.OutputFrame{Frame: &cellv1.OutputFrame_Data{Data: data}}) != nil {
				return
			}
			at += uint64(p.n)
		case p.end:
			end := &cellv1.OutputEnd{Offset: at}
			_ = enc.Encode(&cellv1.OutputFrame{Frame: &cellv1.OutputFrame_End{End: end}})
			return
		default:
			select {
			case <-p.changed:
			case <-left:
				return
			}
		}
	}
}
