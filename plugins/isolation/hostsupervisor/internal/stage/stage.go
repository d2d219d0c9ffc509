// Package stage is what runs between the driver's fork and the cell agent:
// the plugin's own binary, started anew inside the cell's namespaces, makes
// the cell's view of the machine, gives up what the cell shall not have, and
// becomes the agent by exec. It imports golang.org/x/sys only. The
// one idea: nothing of the agent runs before the driver has written down whom
// it started; a driver that dies first leaves a stage that ends by itself.
package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Argument is the only argument of a process that is to be a stage.
const Argument = "airlock-stage"

// Descriptors that the driver passes. SecretFD stays open for the agent.
const (
	SecretFD = 3
	setupFD  = 4 // Setup as JSON, to the end of the file
	imageFD  = 5 // the agent's program, as it was hashed
	statusFD = 6 // Report as JSON; its end without an error = the agent runs
	goFD     = 7 // one byte = go on; its end = give up
)

// Setup says what to do.
type Setup struct {
	// Tasks are cgroup v1 files to join by.
	Tasks []string `json:"tasks,omitempty"`
	// Loopback brings the loopback interface of a new network namespace up.
	Loopback bool `json:"loopback,omitempty"`
	// Hostname names a new UTS namespace.
	Hostname string `json:"hostname,omitempty"`
	// Root makes the cell's own root in a new mount namespace.
	Root *Root `json:"root,omitempty"`
	// Processes is a limit for RLIMIT_NPROC; 0 = none.
	Processes uint64 `json:"processes,omitempty"`
	// Writable are the paths, as the cell sees them, that Landlock leaves
	// writable; none = no Landlock.
	Writable []string `json:"writable,omitempty"`
	// Subreaper makes the agent the parent of orphans below it, where no pid
	// namespace does.
	Subreaper bool `json:"subreaper,omitempty"`
	// DropCapabilities keeps only what the agent needs.
	DropCapabilities bool `json:"drop_capabilities,omitempty"`
	// Argv and Env are the agent's.
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// Probe ends after the set-up with status 0 instead of the agent.
	Probe bool `json:"probe,omitempty"`
}

// Report is what the stage says before it becomes the agent.
type Report struct {
	// Confinement is what was done, in words, weakest first.
	Confinement []string `json:"confinement,omitempty"`
	// PidNS is the inode of the pid namespace.
	PidNS string `json:"pidns,omitempty"`
	// Error says why there will be no agent.
	Error string `json:"error,omitempty"`
}

// A stage starts before the program around it: packages are initialised in the
// order of their paths, and gRPC and protobuf, which come later, take longer
// than all that a stage does. main cannot come that early, so this is the one
// init here; it does nothing in any other process.
func init() {
	if len(os.Args) == 2 && os.Args[1] == Argument {
		main()
	}
}

// main runs the stage, and does not return.
func main() {
	// What is set per thread (cgroup v1, Landlock, capabilities) must be set on
	// the thread that becomes the agent.
	runtime.LockOSThread()
	// Whatever else the driver was started with is not the agent's either.
	if err := unix.CloseRange(setupFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := setupFD; fd <= goFD; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	status := os.NewFile(statusFD, "status")
	report, err := run()
	report.Error = err.Error()
	_ = json.NewEncoder(status).Encode(report)
	os.Exit(125)
}

func run() (Report, error) {
	var s Setup
	var report Report
	b, err := io.ReadAll(os.NewFile(setupFD, "setup"))
	if err != nil {
		return report, fmt.Errorf("read the set-up: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return report, fmt.Errorf("read the set-up: %w", err)
	}
	if report, err = prepare(s); err != nil {
		return report, err
	}
	if s.Probe {
		os.Exit(0)
	}
	program, err := s.program()
	if err != nil {
		return report, err
	}
	if err := send(report); err != nil {
		return report, err
	}
	one := make([]byte, 1)
	if n, err := unix.Read(goFD, one); n != 1 {
		return report, fmt.Errorf("the driver gave up: %w", errors.Join(err, io.EOF))
	}
	// It returns only with an error.
	err = syscall.Exec(program, s.Argv, s.Env)
	return report, fmt.Errorf("start the cell agent: %w", err)
}

// program is a name of the program that was hashed, whatever its path means by
// now. In a root of its own it is opened by the path there, so that the agent
// can tell the workload where it lies.
func (s *Setup) program() (string, error) {
	if s.Root == nil {
		return self(imageFD), nil
	}
	fd, err := unix.Open(CellAgent, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the cell agent: %w", err)
	}
	var here, hashed unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &here), unix.Fstat(imageFD, &hashed)); err != nil {
		return "", fmt.Errorf("look at the cell agent: %w", err)
	}
	if here.Dev != hashed.Dev || here.Ino != hashed.Ino {
		return "", errors.New("the cell agent's file was exchanged")
	}
	return self(fd), nil
}

// prepare does everything that can be undone by ending the process.
func prepare(s Setup) (Report, error) {
	var report Report
	// Asked before /proc is that of the new namespace.
	report.PidNS, _ = os.Readlink("/proc/self/ns/pid")
	for _, f := range s.Tasks {
		if err := os.WriteFile(f, []byte("0"), 0); err != nil {
			return report, fmt.Errorf("join a cgroup: %w", err)
		}
	}
	if s.Loopback {
		if err := loopbackUp(); err != nil {
			return report, fmt.Errorf("bring the loopback up: %w", err)
		}
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return report, fmt.Errorf("set the host name: %w", err)
		}
	}
	if s.Root != nil {
		notes, err := s.Root.enter()
		if err != nil {
			return report, fmt.Errorf("make the cell's root: %w", err)
		}
		report.Confinement = append(report.Confinement, notes...)
	}
	if s.Subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return report, fmt.Errorf("become subreaper: %w", err)
		}
	}
	notes, err := confine(s)
	report.Confinement = append(notes, report.Confinement...)
	return report, err
}

func send(r Report) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := unix.Write(statusFD, append(b, '\n')); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Read reads a report; more says whether the agent may still be started.
func Read(line []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil {
		return r, fmt.Errorf("the stage said %q: %w", strings.TrimSpace(string(line)), err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}
