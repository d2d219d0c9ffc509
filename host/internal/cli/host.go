package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/airlock-host/airlock/host/internal/store"
)

func (a *app) drainCommand() *cobra.Command {
	var deadline time.Duration
	cmd := &cobra.Command{
		Use: "drain", Short: "take no new missions, and leave the orchestrator", Args: cobra.NoArgs,
		Long:    "Take no new missions. With --deadline wait for those that run, at most that\nlong. Then the host leaves the orchestrator; it stays up until it is stopped.",
		Example: "  airlock drain --deadline 10m",
	}
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "wait this long for missions that run")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		if t, ok := c.http.Transport.(*http.Transport); ok {
			t.ResponseHeaderTimeout = 0 // as long as it takes
		}
		_, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/drain", map[string]string{"deadline": deadline.String()})
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "the host takes no new missions")
		}
		return err
	})
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print the version of this program", Args: cobra.NoArgs, Example: "  airlock version --json"}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "airlock %s (%s, %s/%s)\n", a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		}
		text, err := json.Marshal(map[string]any{"version": a.version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "store_schema": store.Schema()})
		if err != nil {
			return err
		}
		return showJSON(cmd.OutOrStdout(), text)
	}
	return cmd
}

// manCommand writes the manual pages, for packages.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "AIRLOCK", Section: "1", Source: "airlock " + a.version}, args[0])
		},
	}
}
