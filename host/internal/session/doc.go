// Package session holds what the host keeps of a session (one process with its
// terminal or pipes inside a cell): its output log and its live end. It imports
// the standard library and golang.org/x/sys only.
//
// The one idea: the log on disk is the only fan-out point. The pump appends to
// it by offset; runtime plugin, attached terminals and `mission logs` read it
// by offset at their own pace, so that a slow reader costs nobody anything and
// no queue grows in memory.
package session

import "errors"

// Errors that callers decide on.
var (
	// ErrHole: the data begins behind Next; call Gap first if the bytes between
	// are gone for good.
	ErrHole = errors.New("output does not follow what is there")
	// ErrFull: the disk is full. Nothing that was synced is lost and the same
	// call may be made again later.
	ErrFull = errors.New("no space left for the session log")
	// ErrFinished: output after Finish.
	ErrFinished = errors.New("session log is finished")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("session log is closed")
	// ErrEnded: the session has ended, there is nobody to take it.
	ErrEnded = errors.New("session has ended")
)

// Stream says where output came from. Its numbers are those of the cell link.
type Stream uint8

// The streams.
const (
	Stdout Stream = 1 // standard output, or the terminal
	Stderr Stream = 2
)

// String names the stream.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	default:
		return "unknown"
	}
}

// Segment is a piece of output. Where Offset is more than the end of the
// segment before (or than what was asked for), the bytes between are gone.
type Segment struct {
	Stream Stream
	Offset uint64 // of the first byte, both streams counted together
	Data   []byte
}
