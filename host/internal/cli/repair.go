package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cli/configcmd"
	"github.com/airlock-host/airlock/host/internal/repair"
	"github.com/airlock-host/airlock/host/internal/store"
)

// repairCommand works on the data directory of a host that is stopped, as
// whoever may read and write it.
func repairCommand() *cobra.Command {
	var path, reason string
	var yes bool
	cmd := &cobra.Command{
		Use: "repair TASK", Short: "cut the bad end of a task's journal off, with the host stopped", Args: cobra.ExactArgs(1),
		Long: `Cut the bad end of a task's journal off. A task whose journal does not verify
(a torn or changed record) is quarantined: nothing of it goes on. repair cuts
everything behind its last good event, keeps what it cuts in DATA_DIR/repaired,
and appends an event "repaired" that says who did it, why, and what was wrong.
It never cuts anything that a signed head covers: such a journal was tampered
with or put back from an older copy, and only the right copy helps.

The host must be stopped. Without --yes nothing is changed; what would be done is
printed. The repaired mission comes back waiting for an explicit restart
(airlock control restart TASK), since what was cut may have been a call that ran.`,
		Example: "  airlock journal repair m-abc123                      # what would be cut\n" +
			"  airlock journal repair m-abc123 --yes --reason \"disk error of 3 May\"",
	}
	f := cmd.Flags()
	f.StringVarP(&path, "config", "c", configcmd.DefaultPath, "the host's configuration, which names its data directory and its signed heads")
	f.StringVar(&reason, "reason", "", "why, for the journal")
	f.BoolVar(&yes, "yes", false, "do it")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, diags := config.Load(path, config.Options{})
		if diags.HasErrors() {
			return failf(ExitFailed, "%s cannot be used (airlock validate %s says why)", path, shellQuote(path))
		}
		rep, err := repair.Run(cmd.Context(), repair.Options{Config: cfg, Task: args[0], Actor: whoami(), Reason: reason, Do: yes})
		var locked store.ErrLocked
		switch {
		case errors.As(err, &locked):
			return failf(ExitConflict, "a journal is repaired with its host stopped: %w", err)
		case errors.Is(err, store.ErrNotFound):
			return failf(ExitNotFound, "the host has no task %q", args[0])
		case errors.Is(err, store.ErrNotRepairable):
			err = failf(ExitConflict, "%w", err)
		}
		if *asJSON {
			text, jerr := json.Marshal(rep)
			if jerr != nil {
				return errors.Join(err, jerr)
			}
			return errors.Join(err, showJSON(cmd.OutOrStdout(), text))
		}
		if err == nil {
			showRepair(cmd.OutOrStdout(), &rep)
		}
		return err
	}
	return cmd
}

func showRepair(w io.Writer, r *repair.Report) {
	line(w, "task", printable(r.TaskID))
	line(w, "fault", printable(r.Fault))
	line(w, "good up to", fmt.Sprintf("event %d of %d", r.CutAfter, r.WasSequence))
	if r.Trusted > 0 {
		line(w, "signed up to", fmt.Sprintf("event %d, which stays", r.Trusted))
	} else {
		line(w, "signed up to", "nothing: there is no signed head of this task")
	}
	if !r.Done {
		fmt.Fprintf(w, "nothing was changed. With --yes %d events are cut off and kept beside the store, and an event \"repaired\" says so\n", r.CutEvents)
		return
	}
	line(w, "cut", fmt.Sprintf("%d events, kept in %s", r.CutEvents, r.Kept))
	line(w, "repaired", fmt.Sprintf("the journal now ends at event %d", r.Sequence))
	line(w, "state", r.State)
}

// whoami is the operating system's user, for the journal.
func whoami() string {
	u, err := user.Current()
	if err != nil {
		return "unknown user"
	}
	return "user " + u.Username + " (uid " + u.Uid + ")"
}
