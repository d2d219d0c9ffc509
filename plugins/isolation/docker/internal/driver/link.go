package driver

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	// lookPause is the pause between two looks for the agent's socket.
	lookPause = 500 * time.Microsecond
	// askPause is the pause between two questions to the engine meanwhile.
	askPause = 100 * time.Millisecond
)

// awaitLink returns when the agent's socket is there: the agent makes it under
// another name and renames it once it listens.
func (in *instance) awaitLink(ctx context.Context, b *box) error {
	asked := time.Now()
	for !exists(b.link()) {
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Since(asked) < askPause {
			continue
		}
		now, err := in.inspect(ctx, b.CellID)
		if err != nil {
			return err
		}
		if !now.running() && !exists(b.link()) {
			return plugin.FailedPrecondition("cell %s: the cell agent ended at once, with code %d: %s", b.CellID,
				now.state.ExitCode, in.logs(ctx, b.id))
		}
		asked = time.Now()
	}
	return nil
}

// logs is the end of what the agent has said, for an error message.
func (in *instance) logs(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	r, err := in.engine.client().ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "10"})
	if err != nil {
		return "its log cannot be read: " + err.Error()
	}
	defer r.Close()
	var b bytes.Buffer
	_, _ = stdcopy.StdCopy(&b, &b, io.LimitReader(r, 64<<10))
	const most = 600
	text := strings.TrimSpace(b.String())
	if text == "" {
		return "it said nothing"
	}
	return text[max(0, len(text)-most):]
}

// rest waits a moment for something that the engine is about to do.
func rest(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
