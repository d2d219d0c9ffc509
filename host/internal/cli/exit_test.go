package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"none":                     {nil, ExitOK},
		"any":                      {errors.New("x"), ExitFailed},
		"not found":                {failf(ExitNotFound, "x"), ExitNotFound},
		"wrapped":                  {fmt.Errorf("y: %w", failf(ExitConflict, "x")), ExitConflict},
		"the outer one counts":     {failf(ExitFailed, "y: %w", failf(ExitNotFound, "x")), ExitFailed},
		"a deadline":               {fmt.Errorf("y: %w", context.DeadlineExceeded), ExitTimedOut},
		"a cancel":                 {context.Canceled, ExitFailed},
		"not found, with a name":   {named(failf(ExitNotFound, "x"), "task", "t"), ExitNotFound},
		"conflict, with a name":    {named(failf(ExitConflict, "x"), "task", "t"), ExitConflict},
		"a wait that was too long": {waited(context.DeadlineExceeded, "t", 1), ExitTimedOut},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestExitCodeOfAnAnswer(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		200: ExitOK, 400: ExitFailed, 401: ExitNotAllowed, 403: ExitNotAllowed, 404: ExitNotFound, 409: ExitConflict,
		422: ExitFailed, 429: ExitNotAllowed, 500: ExitFailed, 502: ExitFailed, 503: ExitFailed, 504: ExitTimedOut, 302: ExitFailed,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			if status == http.StatusOK {
				_, _ = io.WriteString(w, `{"questions":[]}`)
				return
			}
			_, _ = io.WriteString(w, `{"error":"because \u001b[2J"}`)
		}))
		sh := &shell{t, map[string]string{"AIRLOCK_ADDR": srv.URL}, "/nonexistent"}
		r := sh.run("hitl", "list").want(t, want, http.StatusText(status))
		if want != ExitOK {
			r.has(t, `because \x1b[2J`)
		}
		srv.Close()
	}
}

func TestExitCodesOfOtherPackagesComeFirst(t *testing.T) {
	t.Parallel()
	own := errors.New("mine")
	root := NewRoot("1", &cobra.Command{Use: "dev", RunE: func(*cobra.Command, []string) error { return own }})
	root.SetArgs([]string{"dev"})
	root.SetErr(io.Discard)
	code := Execute(t.Context(), root, func(err error) (int, bool) { return 42, errors.Is(err, own) })
	if code != 42 {
		t.Errorf("exit code %d", code)
	}
	root.SetArgs([]string{"nothing"})
	if code := Execute(t.Context(), root, func(err error) (int, bool) { return 42, errors.Is(err, own) }); code != ExitFailed {
		t.Errorf("exit code %d", code)
	}
}

// plain is an exit code of a mission, which its events have told already.
type plain int

func (plain) Error() string { return "exit code" }

// An error that only asks for an exit code is not printed; what it is wrapped in
// says why, and is.
func TestWhatAsksForAnExitCodeSaysWhy(t *testing.T) {
	t.Parallel()
	for text, err := range map[string]error{"": plain(5), "error: it did not end in 10s: exit code\n": fmt.Errorf("it did not end in 10s: %w", plain(5))} {
		var out bytes.Buffer
		root := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return err }, SilenceErrors: true, SilenceUsage: true}
		root.SetErr(&out)
		root.SetArgs(nil)
		code := Execute(t.Context(), root, func(err error) (int, bool) {
			var p plain
			ok := errors.As(err, &p)
			return int(p), ok
		})
		if code != 5 || out.String() != text {
			t.Errorf("exit code %d, %q, want %q", code, out.String(), text)
		}
	}
}
