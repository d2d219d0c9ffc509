package cell

import (
	"errors"
	"fmt"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// Error is a refusal by the cell agent. errors.Is compares its Code with the
// sentinels below.
type Error struct {
	Code    cellv1.ErrorCode
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return "cell agent: " + codeWord(e.Code)
	}
	return fmt.Sprintf("cell agent: %s: %s", codeWord(e.Code), e.Message)
}

// Is makes errors.Is(err, ErrStale) true for every Error of that code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Code == e.Code
}

// What the cell agent refuses, for errors.Is.
var (
	// ErrInvalid: the frame makes no sense.
	ErrInvalid = &Error{Code: cellv1.ErrorCode_ERROR_CODE_INVALID}
	// ErrNotFound: no such session or question.
	ErrNotFound = &Error{Code: cellv1.ErrorCode_ERROR_CODE_NOT_FOUND}
	// ErrStale: the generation is not the one that the cell is bound to.
	ErrStale = &Error{Code: cellv1.ErrorCode_ERROR_CODE_STALE}
	// ErrLatched: the stop latch is set.
	ErrLatched = &Error{Code: cellv1.ErrorCode_ERROR_CODE_LATCHED}
	// ErrStartFailed: the program could not be started.
	ErrStartFailed = &Error{Code: cellv1.ErrorCode_ERROR_CODE_START_FAILED}
	// ErrClosed: the session has ended, or its input is closed.
	ErrClosed = &Error{Code: cellv1.ErrorCode_ERROR_CODE_CLOSED}
	// ErrProtocol: no protocol version in common.
	ErrProtocol = &Error{Code: cellv1.ErrorCode_ERROR_CODE_PROTOCOL}
	// ErrInternal: something else went wrong at the agent.
	ErrInternal = &Error{Code: cellv1.ErrorCode_ERROR_CODE_INTERNAL}
	// ErrConflict: the same id is in use for something else.
	ErrConflict = &Error{Code: cellv1.ErrorCode_ERROR_CODE_CONFLICT}
)

// What can go wrong with the link itself.
var (
	// ErrLinkLost: the connection is over. Nothing is known of requests that
	// had no reply; they are safe to repeat on the next connection.
	ErrLinkLost = errors.New("cell link lost")
	// ErrRefused: the opening failed. Most often the secret is not the cell's.
	ErrRefused = errors.New("cell link refused")
)

func codeWord(c cellv1.ErrorCode) string {
	switch c {
	case cellv1.ErrorCode_ERROR_CODE_INVALID:
		return "invalid"
	case cellv1.ErrorCode_ERROR_CODE_NOT_FOUND:
		return "not found"
	case cellv1.ErrorCode_ERROR_CODE_STALE:
		return "stale generation"
	case cellv1.ErrorCode_ERROR_CODE_LATCHED:
		return "stop latch is set"
	case cellv1.ErrorCode_ERROR_CODE_START_FAILED:
		return "start failed"
	case cellv1.ErrorCode_ERROR_CODE_CLOSED:
		return "closed"
	case cellv1.ErrorCode_ERROR_CODE_PROTOCOL:
		return "no common protocol version"
	case cellv1.ErrorCode_ERROR_CODE_INTERNAL:
		return "internal"
	case cellv1.ErrorCode_ERROR_CODE_CONFLICT:
		return "conflict"
	default:
		return "unspecified error"
	}
}
