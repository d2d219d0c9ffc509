package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// app is what the commands share.
type app struct {
	version string
	getenv  func(string) string
	socket  string // where the operator socket is by default

	addr, tokenFile string // flags
}

// defaultSocket is the operator socket of the default run_dir.
const defaultSocket = "/run/airlock/airlock.sock"

// NewRoot makes the command line. extra are commands of other packages, serve
// and dev for example.
func NewRoot(version string, extra ...*cobra.Command) *cobra.Command {
	return newRoot(&app{version: version, getenv: os.Getenv, socket: defaultSocket}, extra...)
}

func newRoot(a *app, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "airlock",
		Short: "Run AI agents' missions in cells, govern every tool call, and prove what happened.",
		Long: `Airlock runs AI agents' missions in isolated cells, governs every tool call, and
can prove what happened and that it was stopped.

Commands that talk to a host find it by --addr or AIRLOCK_ADDR, else by the
operator socket (` + defaultSocket + `), else at 127.0.0.1:8122. Over TCP they
need AIRLOCK_TOKEN, an operator's token.

Exit codes: 0 ok, 1 failed, 2 not found, 3 conflict, 4 not allowed, 5 timed out.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	f := root.PersistentFlags()
	f.StringVar(&a.addr, "addr", "", "where the host is: http://HOST:PORT, HOST:PORT or the path of its operator socket (AIRLOCK_ADDR)")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the operator's token (default: AIRLOCK_TOKEN)")
	root.AddCommand(extra...)
	root.AddCommand(
		a.statusCommand(), a.missionCommand(), a.hitlCommand(), a.controlCommand(),
		a.approveCommand(), a.resolveCommand(), a.waiveCommand(), a.tokenCommand(), a.journalCommand(), a.uiCommand(),
		a.pluginCommand(), a.imageCommand(), a.drainCommand(), a.reloadCommand(), a.topCommand(), a.benchCommand(), a.debugCommand(), a.versionCommand(), a.manCommand())
	a.complete(root)
	return root
}

// group makes a command that only holds others: by itself it prints its help,
// and of a name that it does not have it says which ones are near.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subs...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2 // cobra sets it for the root only
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return failf(ExitFailed, "%s\n\nDid you mean this?\n\t%s\n", text, strings.Join(near, "\n\t"))
		}
		return failf(ExitFailed, "%s; %s --help lists them", text, cmd.CommandPath())
	}
	return cmd
}
