package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// approvalActions are the five answers.
func approvalActions() []string {
	return []string{"approve_once", "reject", "modify_intent", "ask_agent_to_replan", "stop_agent"}
}

func (a *app) approveCommand() *cobra.Command {
	var file, explanation, task, fingerprint string
	cmd := &cobra.Command{
		Use: "approve DECISION_ID ACTION", Short: "answer a tool call that waits for a human", Args: cobra.ExactArgs(2),
		Long: `Answer a tool call that waits for a human. ACTION is one of
  approve_once         let this one call run, as it was shown and once
  reject               it does not run
  modify_intent        put another intent in force (--intent-file, a complete
                       envelope); the call is judged again under it
  ask_agent_to_replan  it does not run, and the agent is to make another plan
  stop_agent           stop the whole task

airlock hitl list and airlock status TASK show what waits. An answer is taken
once. Exit code 2: nothing of that id waits, 3: it was answered already, or the
task has gone on.`,
		Example: `  airlock approve 0198c0de-… approve_once
  airlock approve 0198c0de-… reject --explanation "not on a Friday"
  airlock approve 0198c0de-… modify_intent --intent-file intent.json`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return approvalActions(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&file, "intent-file", "", "modify_intent: the new envelope as JSON; - is standard input")
	f.StringVar(&explanation, "explanation", "", "why, for the journal and the agent")
	f.StringVar(&task, "task", "", "whose call it is (default: the task that waits with it, or SIDECAR_ENDPOINT's)")
	f.StringVar(&fingerprint, "fingerprint", "", "refuse the answer unless the call still has this fingerprint")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		body := map[string]any{"decision_id": args[0], "action": args[1]}
		for name, v := range map[string]string{"explanation": explanation, "fingerprint": fingerprint} {
			if v != "" {
				body[name] = v
			}
		}
		if (args[1] == "modify_intent") != (file != "") {
			return failf(ExitFailed, "modify_intent needs --intent-file with a complete intent envelope, and no other action takes one")
		}
		if file != "" {
			text, err := readIntent(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			body["modified_intent"] = text
		}
		id, err := a.waitingTask(cmd.Context(), c, task, args[0])
		if err != nil {
			return err
		}
		text, err := c.call(cmd.Context(), http.MethodPost, "/tasks/"+segment(id)+"/approval", body)
		if err != nil {
			return named(err, "approval", args[0])
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		if err := showReply(cmd.OutOrStdout(), text, args[1], id); err != nil || file == "" {
			return err
		}
		// Which intent holds now is the host's to say.
		st, _, err := c.readTask(cmd.Context(), id)
		if err == nil && st.Intent != nil {
			line(cmd.OutOrStdout(), "intent", st.Intent.Goal)
		}
		return err
	})
	return cmd
}

// waitingTask finds whose call waits.
func (a *app) waitingTask(ctx context.Context, c *client, task, decision string) (string, error) {
	if task != "" {
		return task, nil
	}
	if _, task, err := a.sidecar(); task != "" || err != nil {
		return task, err
	}
	var list struct {
		Questions []question `json:"questions"`
	}
	if _, err := c.get(ctx, "/api/v1/hitl", &list); err != nil {
		return "", err
	}
	for _, q := range list.Questions {
		if q.HITLID == decision && q.approval() {
			return q.MissionID, nil
		}
	}
	if task := c.decided(ctx, decision); task != "" {
		return task, nil // which says what became of it
	}
	return "", failf(ExitNotFound, "no call waits under %q: it was answered or has gone on; airlock hitl list shows what waits, and --task TASK asks that task what became of it", decision)
}

// searched is how many of the newest missions are searched for a decision that
// does not wait any more, and searchTime how long.
const (
	searched   = 50
	searchTime = 10 * time.Second
)

// decided finds the task that a decision belongs to which does not wait any
// more; empty: none of the newest.
func (c *client) decided(ctx context.Context, decision string) string {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	list, err := c.missions(ctx, url.Values{}, searched)
	if err != nil {
		return ""
	}
	for _, raw := range list.Missions {
		var m mission
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		found := false
		_ = c.pages(ctx, m.MissionID, 0, func(ev event) error {
			var p struct {
				DecisionID string `json:"decision_id"`
			}
			if ev.Kind == "decision" && json.Unmarshal(ev.Payload, &p) == nil && p.DecisionID == decision {
				found = true
				return errEnough
			}
			return nil
		})
		if found {
			return m.MissionID
		}
	}
	return ""
}

func readIntent(in io.Reader, file string) (json.RawMessage, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(in, 1<<20))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the intent: %w", err)
	}
	if !json.Valid(text) {
		return nil, failf(ExitFailed, "%s is not one JSON value: it must be a complete intent envelope", file)
	}
	return text, nil
}

// showReply says what came of an answer. That it was taken does not mean that
// the call may run.
func showReply(w io.Writer, text []byte, action, task string) error {
	var r struct {
		Resolved string `json:"resolved_decision_id"`
		Status   string `json:"status"`
		Epoch    uint64 `json:"epoch"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	line(w, "answered", action)
	line(w, "task", task)
	line(w, "decision", r.Resolved)
	line(w, "status", r.Status)
	line(w, "epoch", fmt.Sprint(r.Epoch))
	return nil
}
