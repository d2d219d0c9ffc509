package cli

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func (a *app) waiveCommand() *cobra.Command {
	var explanation string
	cmd := &cobra.Command{
		Use: "waive [TASK] ISSUER", Short: "do without an issuer's acknowledgement that access is revoked", Args: cobra.RangeArgs(1, 2),
		Long: `Do without an issuer's acknowledgement that a task's access is revoked, say
because no revoker of its name is configured any more. Nothing is revoked: the
waiver goes into the journal with your name, receipts go on to say that access
was not acknowledged everywhere, and the issuer does not keep the task from a
restart, or the host from forgetting it, any longer. It must have been asked and
have failed: airlock status TASK shows what it said.`,
		Example: "  airlock waive order-task bank --explanation \"the session ended with the year\"",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&explanation, "explanation", "", "why its access needs no revocation, for the journal (required)")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		task, err := a.needTask(args[:len(args)-1], "waive")
		if err != nil {
			return err
		}
		if explanation == "" {
			return failf(ExitFailed, "--explanation must say why the issuer's access needs no revocation")
		}
		issuer := args[len(args)-1]
		text, err := c.call(cmd.Context(), http.MethodPost, "/tasks/"+segment(task)+"/waive", map[string]string{"issuer": issuer, "explanation": explanation})
		if err != nil {
			return named(err, "issuer "+issuer+" of task", task)
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is waived; nothing was revoked there\n", printable(issuer))
		return nil
	})
	return cmd
}

func (a *app) tokenCommand() *cobra.Command {
	var scopes []string
	cmd := &cobra.Command{
		Use: "token [TASK]", Short: "give a harness task another token", Args: cobra.MaximumNArgs(1),
		Long: `Give a task of a harness another token, say because the one before is lost or
known to others. The one before is void at once; the new one is shown once.`,
		Example: "  airlock token order-task --scopes propose,dispatch",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringSliceVar(&scopes, "scopes", nil, "what it is good for: propose, dispatch, access, mcp (default: as before)")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		task, err := a.needTask(args, "token")
		if err != nil {
			return err
		}
		body := map[string]any{}
		if len(scopes) > 0 {
			body["scopes"] = scopes
		}
		text, err := c.call(cmd.Context(), http.MethodPost, "/tasks/"+segment(task)+"/token", body)
		if err != nil {
			return named(err, "task", task)
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		var got struct {
			Token string `json:"token"`
			URL   string `json:"url"`
		}
		if err := json.Unmarshal(text, &got); err != nil {
			return err
		}
		line(cmd.OutOrStdout(), "token", got.Token)
		line(cmd.OutOrStdout(), "url", got.URL)
		return nil
	})
	return cmd
}
