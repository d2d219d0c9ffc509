package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var at uint64
	cmd := &cobra.Command{
		Use: "logs MISSION", Short: "print a mission's output", Args: cobra.ExactArgs(1),
		Long: `Print what a mission has written, byte for byte; with --follow until it ends.
Where the oldest output was dropped (its log has a quota), this says so.
--json prints an object a line for each piece: {"from": OFFSET, "data": BASE64}.`,
		Example: "  airlock mission logs m-abc123 --follow",
	}
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object for each piece of output")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the session ends")
	cmd.Flags().Uint64Var(&at, "from", 0, "begin at this byte")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		g := &gapWriter{Writer: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
		if *asJSON {
			g.Writer = &pieces{w: g.Writer, at: &g.at}
		}
		return c.logs(cmd.Context(), args[0], at, follow, g)
	})
	return cmd
}

// gapWriter is where output goes, and beside it what there is to say about it.
type gapWriter struct {
	io.Writer
	notes io.Writer
	at    uint64 // where the next bytes belong
}

// pieces writes each piece of output as a JSON line.
type pieces struct {
	w  io.Writer
	at *uint64
}

func (p *pieces) Write(data []byte) (int, error) {
	text, err := json.Marshal(struct {
		From uint64 `json:"from"`
		Data []byte `json:"data"`
	}{*p.at, data})
	if err != nil {
		return 0, err
	}
	if _, err := p.w.Write(append(text, '\n')); err != nil {
		return 0, err
	}
	*p.at += uint64(len(data))
	return len(data), nil
}

// logs copies a mission's output to w. With follow it waits for the session and
// goes on to its end; a connection that breaks is made again.
func (c *client) logs(ctx context.Context, id string, at uint64, follow bool, w *gapWriter) error {
	session, err := c.awaitSession(ctx, id, follow)
	if err != nil || session == "" {
		return err
	}
	if !follow {
		_, err := c.copyLog(ctx, session, &at, false, w)
		return named(err, "session", session)
	}
	for failures := 0; ; {
		before := at
		whole, err := c.copyLog(ctx, session, &at, true, w)
		var e *exitError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case whole:
			return nil
		case errors.As(err, &e) && e.code != ExitFailed:
			return named(err, "session", session)
		}
		if failures++; at != before {
			failures = 0
		}
		if failures > maxRetries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// awaitSession waits until the mission has a session; empty: it ended without
// one.
func (c *client) awaitSession(ctx context.Context, id string, follow bool) (string, error) {
	session, err := c.session(ctx, id)
	if ExitCode(err) != ExitConflict || !follow {
		return session, err
	}
	err = c.follow(ctx, id, 0, func(ev event) error {
		if ev.Kind == "started" || ev.Kind == "ended" {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	session, err = c.session(ctx, id)
	if ExitCode(err) == ExitConflict {
		return "", nil
	}
	return session, err
}

// copyLog copies output from an offset on and moves the offset. whole says that
// the answer came to its end.
func (c *client) copyLog(ctx context.Context, session string, at *uint64, follow bool, w *gapWriter) (whole bool, err error) {
	path := fmt.Sprintf("/api/v1/sessions/%s/log?from=%d", segment(session), *at)
	if follow {
		path += "&follow=1"
	}
	resp, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if first, err := strconv.ParseUint(resp.Header.Get("Airlock-Log-From"), 10, 64); err == nil && first > *at {
		fmt.Fprintf(w.notes, "[%d bytes of output are gone]\n", first-*at)
		*at = first
	}
	w.at = *at
	n, err := io.Copy(w, resp.Body)
	*at += uint64(n) //nolint:gosec // never negative
	if err != nil {
		return false, fmt.Errorf("the output of %s broke off: %w", c.where, err)
	}
	return true, nil
}
