package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

// pluginTest are the flags of `plugin test`.
type pluginTest struct {
	config, cellAgent, objective string
	junit                        string
	only, env                    []string
	timeout                      time.Duration
	uid                          uint32
	verbose                      bool
}

func pluginTestCommand() *cobra.Command {
	o := &pluginTest{}
	cmd := &cobra.Command{
		Use: "test BINARY", Short: "check a built plugin against the contract", Args: cobra.ExactArgs(1),
		Long: `Check a built plugin against the contract of its kind: that it starts as a host
starts it, that its configuration behaves, and that it does what its kind has to
do. A driver is checked with real cells and the cell agent in them. What a plugin
does not declare is shown and is no failure; what it declares and does not do is.

No host is needed. The checks are those of the package sdk/conformance.`,
		Example: "  airlock plugin test ./airlock-isolation-bubblewrap\n" +
			"  airlock plugin test --config example.hcl --json ./airlock-runtime-mine",
	}
	f := cmd.Flags()
	f.StringVarP(&o.config, "config", "c", "", "file with the plugin's HCL block (default: no attribute is set)")
	f.StringVar(&o.cellAgent, "cell-agent", "", "the airlock-cell program (default: beside this program)")
	f.StringVar(&o.objective, "objective", "", "what a runtime is asked to do (default: echo hello)")
	f.StringSliceVar(&o.only, "only", nil, "run only these checks")
	f.StringArrayVar(&o.env, "env", nil, "NAME=VALUE for the plugin's environment; may be repeated")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long one check may take")
	f.Uint32Var(&o.uid, "uid", 0, "uid and gid of the workload in a driver's cells (default: 71234 as root)")
	f.BoolVar(&o.verbose, "verbose", false, "show what the plugin prints to standard error")
	f.StringVar(&o.junit, "junit", "", "write the checks to this file too, as JUnit XML")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], *asJSON) }
	return cmd
}

func (o *pluginTest) run(cmd *cobra.Command, binary string, asJSON bool) error {
	agent, err := findCellAgent(o.cellAgent)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	opts := conformance.BinaryOptions{
		AgentBinary: agent, UID: o.uid, GID: o.uid, Env: o.env, Timeout: o.timeout, Only: o.only,
	}
	if !asJSON {
		opts.Progress = func(c conformance.Check) { showCheck(w, c) }
	}
	if o.verbose {
		opts.Log = cmd.ErrOrStderr()
	}
	if o.objective != "" {
		opts.Mission = &pluginv1.MissionSpec{MissionId: "conformance", Objective: o.objective, Agent: "agent-01"}
	}
	if o.config != "" {
		if opts.Config, err = pluginConfig(o.config, binary); err != nil {
			return err
		}
	}
	report, err := conformance.Binary(cmd.Context(), binary, opts)
	if err != nil {
		return err
	}
	failed := report.Count(conformance.Fail)
	if o.junit != "" {
		if err := writeJUnit(o.junit, report); err != nil {
			return err
		}
	}
	if asJSON {
		text, err := json.Marshal(report)
		if err != nil {
			return err
		}
		if err := showJSON(w, text); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "\n%s, %s: %d passed, %d failed, %d not declared\n", report.Plugin, report.Contract,
			report.Count(conformance.Pass), failed, report.Count(conformance.NotDeclared))
	}
	if failed > 0 {
		return failf(ExitFailed, "%d of %d checks failed", failed, len(report.Checks))
	}
	return nil
}

func showCheck(w io.Writer, c conformance.Check) {
	mark := map[conformance.Result]string{conformance.Pass: "ok", conformance.Fail: "FAILED", conformance.NotDeclared: "not declared"}[c.Result]
	text := fmt.Sprintf("%-13s %s", mark, c.Name)
	if c.Detail != "" {
		text += ": " + strings.Join(strings.Fields(c.Detail), " ")
	}
	fmt.Fprintln(w, text)
}

// findCellAgent is the cell agent that was named, or the one beside this
// program; none = only drivers need it, and say so.
func findCellAgent(named string) (string, error) {
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", failf(ExitNotFound, "the cell agent: %w", err)
		}
		return named, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(exe), "airlock-cell")
	if _, err := os.Stat(beside); err != nil {
		return "", nil //nolint:nilerr // whoever needs it says that it is missing
	}
	return beside, nil
}

// pluginConfig reads the plugin's block out of a configuration: the one whose
// labels fit the executable's name.
func pluginConfig(path, binary string) (func(*pluginv1.ConfigSchema) ([]byte, error), error) {
	cfg, diags := config.Load(path, config.Options{})
	if diags.HasErrors() {
		return nil, failf(ExitFailed, "%s cannot be used: %w", path, diags)
	}
	file := filepath.Base(binary)
	all := slices.Clone(cfg.Instances)
	for _, p := range cfg.Governance.PolicyPlugins {
		all = append(all, p.Instance)
	}
	for _, i := range all {
		if file != "airlock-"+i.Kind+"-"+i.Driver {
			continue
		}
		if i.Invalid != "" {
			return nil, failf(ExitFailed, "%s cannot be used: %s", path, i.Invalid)
		}
		return func(schema *pluginv1.ConfigSchema) ([]byte, error) {
			content, diags := config.DecodePlugin(i, schema, cfg.EvalContext())
			if diags.HasErrors() {
				return nil, diags
			}
			return content, nil
		}, nil
	}
	return nil, failf(ExitNotFound, "%s has no block for %s", path, file)
}
