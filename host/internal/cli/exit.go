package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// Exit codes (surface, CLI).
const (
	ExitOK         = 0
	ExitFailed     = 1
	ExitNotFound   = 2
	ExitConflict   = 3
	ExitNotAllowed = 4
	ExitTimedOut   = 5
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// failf makes an error with an exit code.
func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// ExitCode is the exit code that an error stands for.
func ExitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimedOut
	default:
		return ExitFailed
	}
}

// Execute runs the command line, prints what went wrong and gives the exit
// code. codes are asked first: a command of another package may have exit codes
// of its own, and what it has said is not said again.
func Execute(ctx context.Context, root *cobra.Command, codes ...func(error) (int, bool)) int {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	for _, code := range codes {
		if n, ok := code(err); ok {
			if errors.Unwrap(err) != nil { // it says more than its code
				fmt.Fprintln(root.ErrOrStderr(), "error:", err)
			}
			return n
		}
	}
	fmt.Fprintln(root.ErrOrStderr(), "error:", err)
	return ExitCode(err)
}
