package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/airlock-host/airlock/config"
)

// ServeCommand is `airlock serve`.
func ServeCommand() *cobra.Command {
	var path, cellAgent, level string
	var jsonLog bool
	cmd := &cobra.Command{
		Use:   "serve --config PATH",
		Short: "run the host",
		Long: `Run the host until SIGTERM or SIGINT. Every mission that has not ended is then
suspended; its cell stays alive and the next start takes it up again.

SIGHUP and ` + "`airlock reload`" + ` read the configuration again. What can be applied
while missions run is applied, the rest waits for the next mission or for a
restart; the log says which. A configuration with an error changes nothing.

SIGUSR2 has the host replaced by the program that now lies at its path. That one
gets ready beside the host that works, and takes it over in a moment in which who
connects waits; missions go on. If it does not get ready nothing changes. The
process that was started stays, to pass signals on and to end as the host does.`,
		Example: `  airlock serve --config /etc/airlock/airlock.hcl
  airlock serve --config /etc/airlock/conf.d        # every *.hcl in it, in name order`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pid := guarding(); pid != 0 {
				return guard(pid)
			}
			log, err := newLog(level, jsonLog)
			if err != nil {
				return err
			}
			handed, err := TakeHandover()
			if err != nil {
				return err
			}
			cfg, err := loadConfig(path, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			if path, err = filepath.Abs(path); err != nil {
				return err
			}
			program, err := os.Executable() // now: later its name may be another program's
			if err != nil {
				return err
			}
			upgrade := make(chan os.Signal, 1)
			signal.Notify(upgrade, syscall.SIGUSR2)
			defer signal.Stop(upgrade)
			var gone *Succession
			load := func() (*config.Config, hcl.Diagnostics) { return config.Load(path, config.Options{}) }
			err = Run(ctx, Options{Config: cfg, CellAgent: cellAgent, Log: log, Load: load, Path: path, Hangup: hangup, Up: func(a Addresses) {
				log.Info("airlock is up", "rest", a.REST, "ws", a.WS, "operator_socket", a.Socket)
				tellSystemd(ctx, a.Socket, log)
			}, Handed: handed, Upgrade: upgrade, Program: program, LetGo: func(s *Succession) {
				if gone = s; s.PID != 0 {
					passOn(ctx, s.PID)
				}
			}})
			return afterwards(gone, handed, err, log)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&path, "config", "c", "/etc/airlock/airlock.hcl", "configuration file, or a directory of *.hcl files")
	f.StringVar(&cellAgent, "cell-agent", "", "the airlock-cell program (default: beside this program)")
	f.StringVar(&level, "log-level", "info", "trace, debug, info, warn or error")
	f.BoolVar(&jsonLog, "log-json", false, "log as JSON lines")
	return cmd
}

// afterwards is what a process does that has run a host: it ends, begins anew, or
// guards the one that has taken the host over.
func afterwards(gone *Succession, handed *Handover, err error, log hclog.Logger) error {
	switch {
	case gone == nil:
		return err
	case gone.Handed != nil:
		return fmt.Errorf("begin the host anew: %w", gone.Handed.exec("/proc/self/exe", os.Args))
	case handed.guarded() != 0:
		return nil
	}
	if err != nil {
		log.Warn("the host was handed over; its end here was not a clean one", "error", err)
	}
	return fmt.Errorf("guard the host: %w", becomeGuard(gone))
}

// passOn gives signals that still come to this process to the one that has taken
// the host over; one that has ended the context came before that.
func passOn(ctx context.Context, pid int) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	if ctx.Err() != nil {
		_ = p.Signal(syscall.SIGTERM)
	}
	go func() {
		for sig := range signals {
			_ = p.Signal(sig)
		}
	}()
}

func newLog(level string, asJSON bool) (hclog.Logger, error) {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level %q: use trace, debug, info, warn or error", level)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "airlock", Level: l, JSONFormat: asJSON, Output: os.Stderr}), nil
}

// loadConfig loads a configuration and prints what is wrong with it.
func loadConfig(path string, out io.Writer) (*config.Config, error) {
	sources := &config.Sources{}
	cfg, diags := config.Load(path, config.Options{Sources: sources})
	printDiagnostics(out, sources, diags)
	if diags.HasErrors() {
		return nil, errors.New("the configuration cannot be used")
	}
	return cfg, nil
}

func printDiagnostics(out io.Writer, sources *config.Sources, diags hcl.Diagnostics) {
	if len(diags) == 0 {
		return
	}
	colour := false
	if f, ok := out.(*os.File); ok {
		colour = term.IsTerminal(int(f.Fd()))
	}
	_ = config.WriteDiagnostics(out, diags, sources, 100, colour)
}

// exitCode is an error that carries the process's exit code.
type exitCode struct{ code int }

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// ExitCode gives the exit code that an error asks for, if it asks for one.
func ExitCode(err error) (int, bool) {
	var e exitCode
	if errors.As(err, &e) {
		return e.code, true
	}
	return 0, false
}

// untilSignal runs f until it ends, the context does, or a signal comes.
func untilSignal(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return f(ctx)
}
