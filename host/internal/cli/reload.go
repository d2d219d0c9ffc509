package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
)

func (a *app) reloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reload", Short: "have the host read its configuration again", Args: cobra.NoArgs,
		Long: `Have the host read its configuration again, as SIGHUP does. It says what holds
from now on, what from the next mission on, and what needs a restart. If the new
configuration is not valid, the old one stays whole, and the error says where.
Before, "airlock validate --diff" says what would change.

--json prints {"path","changes","counts","rules_told","draining","warnings"}.`,
		Example: "  airlock validate --diff && airlock reload\n  airlock reload --json | jq '.changes[] | select(.effect == \"restart_needed\")'",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		text, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/reload", nil)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if *asJSON {
			return showJSON(out, text)
		}
		var r struct {
			Path      string          `json:"path"`
			Changes   []config.Change `json:"changes"`
			RulesTold int             `json:"rules_told"`
			Draining  []string        `json:"draining"`
			Warnings  []string        `json:"warnings"`
		}
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		if len(r.Changes) == 0 {
			fmt.Fprintf(out, "%s says what the host runs with already.\n", printable(r.Path))
		} else if err := config.WriteChanges(out, r.Changes); err != nil {
			return err
		}
		if r.RulesTold > 0 {
			fmt.Fprintf(out, "Live tasks that go by other rules from now on: %d.\n", r.RulesTold)
		}
		for _, ref := range r.Draining {
			fmt.Fprintf(out, "Kept until nothing uses it any more: %s.\n", printable(ref))
		}
		for _, w := range r.Warnings {
			fmt.Fprintf(out, "warning: %s\n", printable(w))
		}
		return nil
	})
	return cmd
}

// Running asks the host for the settings that it runs with, and for the path of
// its configuration; cmd is any command below the root.
func Running(cmd *cobra.Command) (map[string]config.Setting, string, error) {
	a := &app{getenv: os.Getenv, socket: defaultSocket}
	for name, into := range map[string]*string{"addr": &a.addr, "token-file": &a.tokenFile} {
		if f := cmd.Flags().Lookup(name); f != nil {
			*into = f.Value.String()
		}
	}
	c, done, err := a.client()
	if err != nil {
		return nil, "", err
	}
	defer done()
	var answer struct {
		Path     string           `json:"path"`
		Settings []config.Setting `json:"settings"`
	}
	if _, err := c.get(cmd.Context(), "/api/v1/config", &answer); err != nil {
		return nil, "", err
	}
	return config.FromHost(answer.Settings), filepath.Clean(answer.Path), nil
}
