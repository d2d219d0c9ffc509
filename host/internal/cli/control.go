package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	var keep bool
	cmd := &cobra.Command{Use: action + " [TASK]", Short: short, Args: cobra.MaximumNArgs(1), Example: "  airlock control " + action + " m-abc123"}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	if action == "stop" {
		cmd.Flags().DurationVar(&wait, "wait", 20*time.Second, "how long to wait for the final receipt, at most 1m")
	}
	if action == "pause" {
		cmd.Flags().BoolVar(&keep, "no-freeze", false, "close the gate only: the agent goes on thinking, and no call of it is dispatched")
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
		body := map[string]any{"action": action, "reason": reason}
		if keep {
			body["freeze"] = false
		}
		text, err := c.call(cmd.Context(), http.MethodPost, path, body)
		if err != nil {
			return named(err, "task", task)
		}
		if action == "stop" {
			return showReceipt(cmd.OutOrStdout(), text, task, *asJSON, wait > 0)
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		var st struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal(text, &st); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", printable(task), strings.ToLower(st.State))
		return nil
	}
	return cmd
}

// issuers are those of a task, with what each has said of the access that it
// gave.
type issuers map[string]struct {
	Result   string `json:"result"`
	Detail   string `json:"detail"`
	Attempts int    `json:"attempts"`
}

// with names those that gave one result.
func (i issuers) with(result string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(i)) {
		if i[name].Result == result {
			names = append(names, name)
		}
	}
	return names
}

func (i issuers) line(name string) string {
	text := strings.TrimSpace(name + " " + i[name].Result + " " + i[name].Detail)
	if n := i[name].Attempts; n > 1 {
		text += fmt.Sprintf(" (%d attempts)", n)
	}
	return text
}

// showReceipt words a stop receipt; it never says more than the receipt does. A
// stop that left access behind is a failure, though the task is stopped.
func showReceipt(w io.Writer, text []byte, task string, asJSON, waited bool) error {
	var r struct {
		StopID    string  `json:"stop_id"`
		Final     bool    `json:"final"`
		Access    string  `json:"access_revocation"`
		At        string  `json:"effective_at"`
		Audit     *string `json:"audit_error"`
		Running   []any   `json:"running"`
		Issuers   issuers `json:"issuers"`
		Isolation struct {
			Driver string `json:"driver"`
			Result string `json:"result"`
			Detail string `json:"detail"`
		} `json:"isolation"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	var failed error
	onlyWaived := len(r.Issuers.with("waived")) > 0 && len(r.Issuers.with("waived"))+len(r.Issuers.with("acknowledged")) == len(r.Issuers)
	switch {
	case !r.Final && !waited: // nobody asked for more than the latch
	case !r.Final:
		failed = failf(ExitTimedOut, "%s runs nothing new, but the stop is still under way; airlock control stop %s waits for its receipt", printable(task), shellQuote(task))
	case r.Access == "partial_failure" && onlyWaived: // an operator has taken it on
	case r.Access == "partial_failure":
		failed = failf(ExitFailed, "%s is stopped, but not all of its access is revoked; airlock control stop %s tries again", printable(task), shellQuote(task))
	}
	if asJSON {
		return errors.Join(showJSON(w, text), failed)
	}
	line(w, "stopped", task)
	line(w, "stop", r.StopID)
	line(w, "effective at", r.At)
	if n := len(r.Running); n > 0 {
		line(w, "running", fmt.Sprintf("%d calls were admitted before; what they did is not undone", n))
	}
	if r.Isolation.Result != "" {
		line(w, "proof", strings.TrimSpace(strings.Join([]string{proofWords(r.Isolation.Result), r.Isolation.Detail}, ": ")))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Issuers)) {
		line(w, "issuer", r.Issuers.line(name))
	}
	switch {
	case !r.Final:
		line(w, "access", "not known yet; the stop is still under way")
	case r.Access == "acknowledged":
		line(w, "access", "revoked, acknowledged by every issuer")
	case r.Access == "partial_failure" && onlyWaived:
		line(w, "access", "NOT all of it is known to be revoked: waived for "+strings.Join(r.Issuers.with("waived"), ", "))
	case r.Access == "partial_failure":
		line(w, "access", "NOT all of it is revoked: an issuer failed")
	case r.Access == "not_configured":
		line(w, "access", "no issuer is configured: nothing was revoked anywhere")
	default:
		line(w, "access", r.Access)
	}
	if r.Audit != nil {
		line(w, "audit error", *r.Audit)
	}
	return failed
}

// proofWords says in words what a receipt's proof means.
func proofWords(result string) string {
	switch result {
	case "cgroup_empty":
		return "nothing of the cell runs (its control group is empty)"
	case "pid_namespace_gone":
		return "nothing of the cell runs (its pid namespace is gone)"
	case "engine_exited":
		return "nothing of the cell runs (the engine says so, and its control group is gone)"
	case "vm_gone":
		return "nothing of the cell runs (its VM is gone)"
	case "subreaper_sweep":
		return "nothing of the cell was found any more"
	case "nothing_started":
		return "nothing had been started"
	case "outside":
		return "none of its process"
	default:
		return "NOT proven that nothing runs (" + result + ")"
	}
}
