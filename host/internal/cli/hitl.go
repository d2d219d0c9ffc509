package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) hitlCommand() *cobra.Command {
	return group(&cobra.Command{Use: "hitl", Short: "questions that missions ask a human"}, a.hitlListCommand(), a.respondCommand())
}

func (a *app) hitlListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the questions that wait", Args: cobra.NoArgs,
		Example: "  airlock hitl list",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		var list struct {
			Questions []question `json:"questions"`
		}
		text, err := c.get(cmd.Context(), "/api/v1/hitl", &list)
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if *asJSON {
			return showJSON(w, text)
		}
		if len(list.Questions) == 0 {
			fmt.Fprintln(w, "nobody waits for an answer")
			return nil
		}
		t := table{head: []string{"QUESTION", "KIND", "MISSION", "AGE", "ARGUMENTS", "PROMPT"}, wide: 5, ids: []int{2, 4}}
		for _, q := range list.Questions {
			kind, args := "question", "-"
			if q.approval() {
				kind, args = "approval", cut(q.Context, 100)
			}
			t.add(q.HITLID, kind, q.MissionID, ago(time.Now(), q.AskedAt), args, strings.TrimSpace(q.Prompt))
		}
		t.print(w)
		return nil
	})
	return cmd
}

func (a *app) respondCommand() *cobra.Command {
	return &cobra.Command{
		Use: "respond QUESTION TEXT", Short: "answer a question; the first answer wins", Args: cobra.ExactArgs(2),
		Long: `Answer a question. The text is written to the session as if it had been typed;
- reads it from standard input. Exit code 2: there is no such question, 3: it
was answered already, or it is an approval (airlock approve answers those).`,
		Example: "  airlock hitl respond 0198c0de-… yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[1]
			if text == "-" {
				b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1<<20))
				if err != nil {
					return err
				}
				text = strings.TrimRight(string(b), "\r\n")
			}
			c, done, err := a.client()
			if err != nil {
				return err
			}
			defer done()
			_, err = c.call(cmd.Context(), http.MethodPost, "/api/v1/hitl/"+segment(args[0])+"/respond", map[string]string{"text": text})
			return named(err, "question that waits for an answer:", args[0])
		},
	}
}
