package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func (a *app) resolveCommand() *cobra.Command {
	var explanation string
	cmd := &cobra.Command{
		Use: "resolve [TASK] INVOCATION OUTCOME", Short: "say how a call ended that a crash left open", Args: cobra.RangeArgs(2, 3),
		Long: `Say how a call ended that a crash left open. OUTCOME is succeeded, failed,
outcome_unknown or definitely_not_started. It goes into the journal with your
name; nothing is claimed as completed without it. A task with open calls cannot
be restarted. TASK may be left out when SIDECAR_ENDPOINT names one.`,
		Example: "  airlock resolve order-task 0198c0de-… failed --explanation \"the bank has no such transfer\"",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&explanation, "explanation", "", "how you know, for the journal")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		task, err := a.task(args[:len(args)-2])
		if err != nil {
			return err
		}
		if task == "" {
			return failf(ExitFailed, "which task? airlock resolve TASK INVOCATION OUTCOME, or set SIDECAR_ENDPOINT")
		}
		invocation, outcome := args[len(args)-2], args[len(args)-1]
		text, err := c.call(cmd.Context(), http.MethodPost, "/tasks/"+segment(task)+"/resolve",
			map[string]string{"invocation_id": invocation, "outcome": outcome, "explanation": explanation})
		if err != nil {
			return named(err, "open call "+invocation+" of task", task)
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is resolved: %s\n", printable(invocation), printable(outcome))
		return nil
	})
	return cmd
}
