package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) controlCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "control", Short: "pause, resume, stop, restart or replan a task",
		Long: `Control a task. TASK may be left out when SIDECAR_ENDPOINT names one.
A stop cannot be refused: it latches the task, cuts its access and kills what
runs, and answers with its receipt.`,
		Example: "  airlock control stop m-abc123 --reason \"wrong branch\"\n  SIDECAR_ENDPOINT=http://127.0.0.1:8122/tasks/m-abc123 airlock control pause",
	}
	var subs []*cobra.Command
	for action, short := range map[string]string{
		"pause": "close the gate and freeze the cell", "resume": "go on after a pause", "stop": "stop for good, with a receipt",
		"restart": "go on with a task that a restart of the host left stopped", "replan": "ask for another plan; dispatch waits until it is resumed",
	} {
		subs = append(subs, a.actionCommand(action, short))
	}
	return group(cmd, subs...)
}

func (a *app) actionCommand(action, short string) *cobra.Command {
	var reason string
	var wait time.Duration
	cmd := &cobra.Command{Use: action + " [TASK]", Short: short, Args: cobra.MaximumNArgs(1), Example: "  airlock control " + action + " m-abc123"}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	if action == "stop" {
		cmd.Flags().DurationVar(&wait, "wait", time.Second, "how long to wait for the final receipt, at most 1m")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		task, err := a.task(args)
		if err != nil {
			return err
		}
		if task == "" {
			return failf(ExitFailed, "which task? airlock control %s TASK, or set SIDECAR_ENDPOINT", action)
		}
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		path := "/tasks/" + segment(task) + "/control"
		if action == "stop" {
			path += "?wait=" + url.QueryEscape(wait.String())
		}
		text, err := c.call(cmd.Context(), http.MethodPost, path, map[string]string{"action": action, "reason": reason})
		if err != nil {
			return named(err, "task", task)
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		if action == "stop" {
			return showReceipt(cmd.OutOrStdout(), text, task)
		}
		var st struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal(text, &st); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", printable(task), st.State)
		return nil
	}
	return cmd
}

// showReceipt words a stop receipt; it never says more than the receipt does.
func showReceipt(w io.Writer, text []byte, task string) error {
	var r struct {
		StopID string  `json:"stop_id"`
		Final  bool    `json:"final"`
		Access string  `json:"access_revocation"`
		At     string  `json:"effective_at"`
		Audit  *string `json:"audit_error"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	line(w, "stopped", task)
	line(w, "stop", r.StopID)
	line(w, "effective at", r.At)
	switch {
	case !r.Final:
		line(w, "access", "not known yet; the stop is still under way")
	case r.Access == "acknowledged":
		line(w, "access", "revoked, acknowledged by every issuer")
	case r.Access == "partial_failure":
		line(w, "access", "NOT all of it is revoked: an issuer failed")
	case r.Access == "not_configured":
		line(w, "access", "no issuer is configured: only the dispatch of this task was stopped")
	default:
		line(w, "access", r.Access)
	}
	if r.Audit != nil {
		line(w, "audit error", *r.Audit)
	}
	return nil
}
