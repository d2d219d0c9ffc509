package configcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/airlock-host/airlock/config"
)

// DefaultPath is the configuration that commands use when none is named.
const DefaultPath = "/etc/airlock/airlock.hcl"

// PluginCheck checks the config blocks of a configuration with the plugins
// themselves: their schemas and their Validate.
type PluginCheck func(ctx context.Context, cfg *config.Config) hcl.Diagnostics

// Running gives what the host runs with, and where its configuration is.
type Running func(cmd *cobra.Command) (settings map[string]config.Setting, path string, err error)

// Validate is `airlock validate`. check may be nil: the plugins' config blocks
// are then checked as far as that goes without the plugins.
func Validate(check PluginCheck, running Running) *cobra.Command {
	var asJSON, noPlugins, quarantine, diff, schema bool
	cmd := &cobra.Command{
		Use:   "validate [PATH]",
		Short: "Check a configuration",
		Long: "Validate checks a configuration, a file or a directory, and says what is wrong with file, line and column.\n" +
			"It fails on everything that is wrong; serve starts without an agent or a plugin whose block is bad, which --quarantine accepts here too.",
		Example: "  airlock validate\n  airlock validate ./airlock.hcl\n  airlock validate --json /etc/airlock\n  airlock validate --diff               # against the running host",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			if schema {
				return writeJSON(cmd.OutOrStdout(), config.JSONSchema())
			}
			path := DefaultPath
			var host map[string]config.Setting
			if diff {
				var err error
				if host, path, err = running(cmd); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				path = args[0]
			}
			sources := &config.Sources{}
			cfg, diags := config.Load(path, config.Options{Strict: !quarantine, Sources: sources, KeepBroken: true})
			if cfg != nil {
				more := cfg.CheckPlaces()
				if check != nil && !noPlugins {
					more = append(more, check(cmd.Context(), cfg)...)
				}
				if quarantine {
					more = asWarnings(more)
				}
				diags = append(diags, more...)
			}
			result := config.DiagnosticsJSON(diags, sources)
			var changes []config.Change
			if diff && cfg != nil && result.Valid {
				changes = config.Changes(host, cfg.Settings())
			}
			if asJSON {
				var answer any = result
				if diff {
					answer = withChanges{result, append([]config.Change{}, changes...)}
				}
				if err := writeJSON(cmd.OutOrStdout(), answer); err != nil {
					return err
				}
			} else if err := report(cmd.ErrOrStderr(), diags, sources); err != nil {
				return err
			}
			if !result.Valid {
				return fmt.Errorf("%s is not valid: %s", path, count(result.Errors, "error"))
			}
			if !asJSON {
				say := fmt.Sprintf("%s is valid: %s, %s", path, count(len(cfg.Agents), "agent"), count(len(cfg.Instances), "plugin instance"))
				if result.Warnings > 0 {
					say += ", " + count(result.Warnings, "warning")
				}
				if check == nil || noPlugins {
					say += "; the plugins' own attributes were not checked"
				}
				fmt.Fprintln(cmd.OutOrStdout(), say+".")
				if diff && len(changes) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "It says what the host runs with already.")
				} else if diff {
					fmt.Fprintln(cmd.OutOrStdout(), "A reload would change:")
					return config.WriteChanges(cmd.OutOrStdout(), changes)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as one JSON object")
	cmd.Flags().BoolVar(&noPlugins, "no-plugins", false, "do not start the plugins to check their config blocks")
	cmd.Flags().BoolVar(&diff, "diff", false, "say what a reload would change on the host that runs; without PATH its own configuration is read")
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of the configuration's JSON form instead, for editors and generators")
	cmd.Flags().BoolVar(&quarantine, "quarantine", false, "accept what serve would start without")
	return cmd
}

// withChanges is the answer of --diff --json.
type withChanges struct {
	config.ValidationJSON
	Changes []config.Change `json:"changes"`
}

func asWarnings(diags hcl.Diagnostics) hcl.Diagnostics {
	out := make(hcl.Diagnostics, len(diags))
	for i, d := range diags {
		w := *d
		w.Severity = hcl.DiagWarning
		out[i] = &w
	}
	return out
}

// report writes diagnostics for a person; in colour on a terminal only.
func report(w io.Writer, diags hcl.Diagnostics, sources *config.Sources) error {
	width, colour := uint(0), false
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		colour = os.Getenv("NO_COLOR") == ""
		if cols, _, err := term.GetSize(int(f.Fd())); err == nil && cols > 20 {
			width = uint(cols)
		}
	}
	return config.WriteDiagnostics(w, diags, sources, width, colour)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
