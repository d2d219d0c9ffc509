package configcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
)

// maxInput bounds what is read from standard input.
const maxInput = 1 << 20

// Fmt is `airlock fmt`.
func Fmt() *cobra.Command {
	var checkOnly bool
	cmd := &cobra.Command{
		Use:   "fmt [PATH…]",
		Short: "Bring configuration files into the usual layout",
		Long: "Fmt rewrites configuration files, or those of a directory, in the usual layout, and prints the names of those it changed.\n" +
			"With - it formats standard input to standard output. A file that does not parse is left as it is.",
		Example: "  airlock fmt .\n  airlock fmt --check /etc/airlock\n  airlock fmt - < airlock.hcl",
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			if len(args) == 0 {
				args = []string{"."}
			}
			if len(args) == 1 && args[0] == "-" {
				return fmtStdin(cmd, checkOnly)
			}
			changed, failed := 0, 0
			for _, arg := range args {
				files, err := config.Files(arg)
				if err != nil {
					return err
				}
				for _, file := range files {
					did, err := fmtFile(cmd, file, checkOnly)
					switch {
					case err != nil:
						fmt.Fprintln(cmd.ErrOrStderr(), err)
						failed++
					case did:
						fmt.Fprintln(cmd.OutOrStdout(), file)
						changed++
					}
				}
			}
			switch {
			case failed > 0:
				return fmt.Errorf("%s could not be formatted", count(failed, "file"))
			case checkOnly && changed > 0:
				return fmt.Errorf("%s not in the usual layout", count(changed, "file"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&checkOnly, "check", false, "change nothing; fail if a file would change")
	return cmd
}

// fmtFile formats one file; did says that it was, or would be, changed. The
// file is replaced as a whole and keeps its mode; a link stays a link.
func fmtFile(cmd *cobra.Command, file string, checkOnly bool) (did bool, err error) {
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", file)
	}
	src, err := os.ReadFile(target)
	if err != nil {
		return false, err
	}
	out, err := format(cmd, src, file)
	if err != nil || bytes.Equal(src, out) {
		return false, err
	}
	if checkOnly {
		return true, nil
	}
	if err := renameio.WriteFile(target, out, info.Mode().Perm(), renameio.WithStaticPermissions(info.Mode().Perm())); err != nil {
		return false, fmt.Errorf("write %s: %w", file, err)
	}
	return true, nil
}

func fmtStdin(cmd *cobra.Command, checkOnly bool) error {
	src, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxInput+1))
	if err != nil {
		return err
	}
	if len(src) > maxInput {
		return errors.New("standard input is larger than 1 MiB")
	}
	out, err := format(cmd, src, "standard input")
	if err != nil {
		return err
	}
	if checkOnly {
		if !bytes.Equal(src, out) {
			return errors.New("standard input is not in the usual layout")
		}
		return nil
	}
	_, err = cmd.OutOrStdout().Write(out)
	return err
}

func format(cmd *cobra.Command, src []byte, name string) ([]byte, error) {
	out, diags := config.Fmt(src, name)
	if !diags.HasErrors() {
		return out, nil
	}
	sources := &config.Sources{}
	sources.Add(name, src)
	if err := report(cmd.ErrOrStderr(), diags, sources); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s does not parse; it is left as it is", name)
}
