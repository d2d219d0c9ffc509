package journal

import (
	"errors"
	"io"
)

// Verify checks an export by itself and, with a trusted head, that the chain
// contains it. It gives the head of what was good; an error is a *ChainError
// that names line, offset, sequence and what is wrong. Without a trusted head
// a tail that was cut off at a line's end cannot be seen (seed 003).
func Verify(r io.Reader, trusted *Head) (Head, error) {
	return verify(NewReader(r), NewChain(trusted))
}

func verify(rd *Reader, c *Chain) (Head, error) {
	var ev Event
	for {
		err := rd.Next(&ev)
		if errors.Is(err, io.EOF) {
			err = c.End()
			return c.Head(), locate(err, rd)
		}
		if err == nil {
			err = c.Add(&ev)
		}
		if err != nil {
			var ce *ChainError
			if errors.As(err, &ce) && ce.Sequence == 0 {
				ce.TaskID, ce.Sequence = c.head.TaskID, c.head.Sequence+1
			}
			return c.Head(), locate(err, rd)
		}
	}
}

// locate puts the place into an error that the chain gave.
func locate(err error, rd *Reader) error {
	var ce *ChainError
	if errors.As(err, &ce) && ce.Line == 0 {
		ce.Line, ce.Offset = rd.Pos()
	}
	return err
}
