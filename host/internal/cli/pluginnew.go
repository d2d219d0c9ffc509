package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/scaffold"
)

func (a *app) pluginNewCommand() *cobra.Command {
	o := scaffold.Options{Version: a.version}
	var dir string
	cmd := &cobra.Command{
		Use: "new " + strings.Join(scaffold.Kinds(), "|") + " NAME", Short: "write the source of a new plugin", Args: cobra.ExactArgs(2),
		Long: `Write the directory of a new plugin: a Go module with a plugin that works, its
test, an example of its configuration block and a README. It compiles, its test
passes, and so does airlock plugin test; change it from there.`,
		Example:   "  airlock plugin new isolation chroot -o chroot\n  airlock plugin new runtime mine --module example.com/mine --sdk ../airlock",
		ValidArgs: scaffold.Kinds(),
	}
	f := cmd.Flags()
	f.StringVarP(&dir, "output", "o", "", "directory to write (default: airlock-KIND-NAME)")
	f.StringVar(&o.Module, "module", "", "path of the Go module (default: example.com/airlock-KIND-NAME)")
	f.StringVar(&o.SDK, "sdk", "", "a checkout of Airlock to build against, instead of its published module")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Kind, o.Name = args[0], args[1]
		if dir == "" {
			dir = o.File()
		}
		if err := scaffold.Write(dir, o); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "wrote %s. Next:\n\n  cd %s\n", dir, dir)
		if o.SDK == "" {
			fmt.Fprintln(w, "  go mod tidy")
		}
		fmt.Fprintf(w, "  go build -o %s .\n  go test ./...\n  airlock plugin test ./%s\n", o.File(), o.File())
		return nil
	}
	return cmd
}
