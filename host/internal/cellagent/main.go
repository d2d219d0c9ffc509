package cellagent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `airlock-cell runs inside of an Airlock cell.

  airlock-cell serve --link-dir DIR (--secret-fd N | --secret-file FILE)
                     [--public-dir DIR] [--cgroup DIR]... [--program FILE]
  airlock-cell vm                              as the init of a VM, nowhere else
  airlock-cell ask [--context TEXT] PROMPT     ask a human, print the answer
  airlock-cell version
`

// Main is the program. It returns the exit status.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 0:
		err = errors.New("no command")
	case args[0] == "serve":
		err = serveMain(args[1:], version, stderr)
	case args[0] == "vm":
		err = vmMain(args[1:], stderr)
	case args[0] == "ask":
		err = askMain(args[1:], stdout, stderr)
	case args[0] == "version":
		_, err = fmt.Fprintln(stdout, version)
	case args[0] == "help", args[0] == "--help", args[0] == "-h":
		_, err = io.WriteString(stdout, usage)
	default:
		err = fmt.Errorf("no such command: %s", args[0])
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errQuiet):
	default:
		fmt.Fprintln(stderr, "airlock-cell:", err)
	}
	return 1
}

func flags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { _, _ = io.WriteString(stderr, usage) }
	return f
}

func askMain(args []string, stdout, stderr io.Writer) error {
	f := flags("ask", stderr)
	context := f.String("context", "", "what helps to answer")
	if f.Parse(args) != nil {
		return errQuiet
	}
	prompt := strings.Join(f.Args(), " ")
	if prompt == "" {
		return errors.New("ask needs a question")
	}
	socket, err := askSocketFromEnv()
	if err != nil {
		return err
	}
	text, err := Ask(socket, prompt, *context)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, text)
	return err
}

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func serveMain(args []string, version string, stderr io.Writer) error {
	// First of all: from here on nobody but root can read this process.
	undumpable()
	f := flags("serve", stderr)
	cfg := Config{Version: version, Log: stderr}
	f.StringVar(&cfg.LinkDir, "link-dir", "", "where link.sock is made")
	f.StringVar(&cfg.PublicDir, "public-dir", "", "where the workload finds ask.sock and bin/airlock-cell")
	f.StringVar(&cfg.Program, "program", "", "where this program lies for the workload; empty = where it was started from")
	f.IntVar(&cfg.Rules, "landlock-fd", 0, "descriptor of Landlock rules that everything in the cell is put under")
	fd := f.Int("secret-fd", -1, "descriptor to read the link secret from")
	file := f.String("secret-file", "", "file to read the link secret from; it is removed")
	port := f.Int("port-fd", -1, "descriptor of the port on which the host connects; instead of a link directory")
	rekey := f.Int("rekey-fd", -1, "descriptor to read new link secrets from")
	var groups list
	f.Var(&groups, "cgroup", "cgroup directory that the agent may use; may be repeated")
	if f.Parse(args) != nil {
		return errQuiet
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	cfg.Cgroups = groups
	var err error
	if cfg.Secret, err = readSecret(*fd, *file); err != nil {
		return fmt.Errorf("link secret: %w", err)
	}
	if cfg.port, err = portFromFlags(*port, *rekey); err != nil {
		return fmt.Errorf("link port: %w", err)
	}
	os.Clearenv()
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	smallLater()
	// A handler, unlike ignoring, is not inherited by the workload.
	unignore()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	a, err := New(cfg)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// smallLater makes resident memory count more than speed, but for the start: a
// collection in the middle of it costs as much as a good part of it.
func smallLater() {
	const startHeap = 16 << 20 // bytes; beyond it there are collections all the same
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(startHeap)
	time.AfterFunc(slackTime, func() {
		debug.SetGCPercent(20)
		debug.SetMemoryLimit(math.MaxInt64)
	})
}

// undumpable keeps the agent's memory, environment and descriptors from
// everybody without CAP_SYS_PTRACE, processes of its own uid included.
func undumpable() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

const maxSecret = 4096

// readSecret reads the secret whole, and leaves no way to read it again.
func readSecret(fd int, file string) ([]byte, error) {
	var f *os.File
	switch {
	case (fd >= 0) == (file != ""):
		return nil, errors.New("give one of --secret-fd and --secret-file")
	case fd >= 0:
		if f = os.NewFile(uintptr(fd), "secret"); f == nil {
			return nil, fmt.Errorf("no descriptor %d", fd)
		}
	default:
		var err error
		if f, err = os.Open(file); err != nil {
			return nil, err
		}
		if err := os.Remove(file); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecret {
		return nil, fmt.Errorf("over %d bytes", maxSecret)
	}
	return b, nil
}
