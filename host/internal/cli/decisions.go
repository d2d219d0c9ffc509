package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// exportFormat are the flags of `journal export` that choose what is written.
type exportFormat struct {
	format string
	by     journal.Attribution
}

func (f *exportFormat) flags(cmd *cobra.Command, version string) {
	f.by.SourceVersion = version
	cmd.Flags().StringVar(&f.format, "format", "journal", "journal: every event, to be verified; decisions: one line for each decision, with an evidence link; aios: one line for each occurrence, under the AIOS draft's names where it has them")
	cmd.Flags().StringVar(&f.by.Source, "source", "agentic-sidecar", "source of the evidence links")
	cmd.Flags().StringVar(&f.by.AgentID, "agent-id", "", "registered deployment in the evidence links (default: the task's agent)")
	cmd.Flags().StringVar(&f.by.RunID, "run-id", "", "run that owns the task, in the evidence links (default: none)")
}

func (f *exportFormat) check() error {
	switch f.format {
	case "journal", "decisions", "aios":
	default:
		return failf(ExitFailed, "--format is journal, decisions or aios, not %q", f.format)
	}
	return nil
}

// write exports a task in the format. Lines are made from the journal while
// it is verified; with an error, what was written is not to be used.
func (f *exportFormat) write(ctx context.Context, c *client, task string, w io.Writer) error {
	if f.format == "journal" {
		return c.export(ctx, task, w)
	}
	in, out := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := c.export(ctx, task, out)
		_ = out.CloseWithError(err) // nil is the end of the file
		exported <- err
	}()
	read := journal.WriteDecisions
	if f.format == "aios" {
		read = journal.WriteOccurrences
	}
	_, err := read(w, in, f.by)
	_ = in.CloseWithError(errEnough)
	if first := <-exported; first != nil && !errors.Is(first, errEnough) {
		return first
	}
	return err
}
