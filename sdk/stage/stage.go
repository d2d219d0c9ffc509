// Package stage is what runs between a driver's fork and the cell agent, for
// drivers that run cells as processes of the machine: a process that was
// started in the cell's namespaces makes the cell's view of the machine, gives
// up what the cell shall not have, and becomes the agent. It imports
// golang.org/x/sys only.
//
// There are two ways to become the agent. The agent's program is a stage
// itself and just goes on (Main); that costs one start of a program. Or the
// driver's program is the stage and execs the agent (Early); that is for agents
// that are not a stage, for trying out what the kernel allows, and where the
// program must lie on the cell's own read-only mount.
//
// The one idea: nothing of the agent runs before the driver has written down
// whom it started; a driver that dies first leaves a stage that ends by itself.
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
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Argument is the only argument of a driver's process that is to be a stage.
const Argument = "airlock-stage"

// AgentArgument is the last argument, behind its own, of an agent that is to be
// its own stage. A program that knows it holds these bytes, by which a driver
// can tell (see Knows).
const AgentArgument = "--as-airlock-stage-v1"

// Knows says whether a part of a program shows that it can be its own stage.
func Knows(program []byte) bool { return bytes.Contains(program, []byte(AgentArgument)) }

// Descriptors that the driver passes. SecretFD stays open for the agent.
const (
	SecretFD = 3
	setupFD  = 4 // Setup as JSON, to the end of the file
	imageFD  = 5 // the agent's program, as it was hashed
	statusFD = 6 // Report as JSON; its end without an error = the agent runs
	goFD     = 7 // one byte = go on; its end = give up
)

// Program is the path under which a process with these descriptors starts the
// agent as its own stage.
func Program() string { return self(imageFD) }

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
	// Argv and Env are the agent's, where it is started by an exec.
	Argv []string `json:"argv"`
	Env  []string `json:"env,omitempty"`
	// rules is the descriptor of what the agent puts its children under; -1: none.
	rules int
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

// Early runs the stage and does not return, in a process of the driver that was
// started with Argument; in any other it does nothing. A stage must start before
// the program around it: packages are initialised in the order of their paths,
// and gRPC and protobuf, which come late, take longer than all that a stage
// does. So it is called from the init of a package that imports this one alone.
func Early() {
	if len(os.Args) != 2 || os.Args[1] != Argument {
		return
	}
	// What is set per thread (cgroup v1, Landlock, capabilities) must be set on
	// the thread that becomes the agent.
	runtime.LockOSThread()
	// Whatever else the driver was started with is not the agent's either.
	if err := unix.CloseRange(setupFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := setupFD; fd <= goFD; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	s, report, err := run(oneThread)
	if err == nil {
		var program string
		if program, err = s.program(); err == nil {
			err = s.become(report, program)
		}
	}
	giveUp(report, err)
}

// Main is the main function of an agent that may be its own stage: it runs
// agent with the arguments that it is to have, and returns its status.
func Main(args []string, agent func(args []string) int) int {
	own := args[1:]
	if len(own) == 0 || own[len(own)-1] != AgentArgument {
		return agent(own)
	}
	own = own[:len(own)-1]
	s, report, err := asAgent()
	if err != nil {
		giveUp(report, err)
	}
	if s.Root != nil {
		// The program's own path is one of the machine's.
		own = append(own, "--program", CellAgent)
	}
	if s.rules >= 0 {
		own = append(own, "--landlock-fd", strconv.Itoa(s.rules))
	}
	return agent(own)
}

// asAgent is a stage in the process that is the agent afterwards, without
// another exec.
func asAgent() (*Setup, Report, error) {
	for fd := setupFD; fd <= goFD; fd++ {
		unix.CloseOnExec(fd)
	}
	sc, err := takeThreads()
	if err != nil {
		return nil, Report{}, err
	}
	s, report, err := run(sc)
	if err != nil {
		return nil, report, err
	}
	if s.Root != nil {
		if err := s.sameProgram(CellAgent); err != nil {
			return nil, report, err
		}
	}
	if sc == oneThread { // this program was built with cgo
		return s, report, s.become(report, self(imageFD))
	}
	if err := s.await(report); err != nil {
		return s, report, err
	}
	// The end of the status pipe says that the agent runs.
	return s, report, closeInherited()
}

// closeInherited closes what an exec would: all descriptors beyond the secret
// that this process did not open itself, and those of the stage.
func closeInherited() error {
	for fd := imageFD; fd <= goFD; fd++ {
		_ = unix.Close(fd)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= SecretFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// giveUp says why there is no agent, and ends.
func giveUp(report Report, err error) {
	report.Error = err.Error()
	_ = json.NewEncoder(os.NewFile(statusFD, "status")).Encode(report)
	os.Exit(125)
}

// run makes the cell's place as the set-up says.
func run(sc scope) (*Setup, Report, error) {
	var s Setup
	f := os.NewFile(setupFD, "setup")
	b, err := io.ReadAll(f)
	// Closed by its owner: else a later collection closes whatever has the
	// number by then.
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, Report{}, fmt.Errorf("read the set-up: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, Report{}, fmt.Errorf("read the set-up: %w", err)
	}
	report, err := prepare(&s, sc)
	if err != nil {
		return nil, report, err
	}
	if s.Probe {
		os.Exit(0)
	}
	return &s, report, nil
}

// become waits for the driver's word and execs the agent. It returns only with
// an error.
func (s *Setup) become(report Report, program string) error {
	if err := s.await(report); err != nil {
		return err
	}
	return fmt.Errorf("start the cell agent: %w", syscall.Exec(program, s.Argv, s.Env))
}

// await reports, and waits for the driver's word.
func (s *Setup) await(report Report) error {
	if err := send(report); err != nil {
		return err
	}
	one := make([]byte, 1)
	if n, err := unix.Read(goFD, one); n != 1 {
		return fmt.Errorf("the driver gave up: %w", errors.Join(err, io.EOF))
	}
	return nil
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
	return self(fd), sameFile(fd)
}

// sameProgram checks that a path means the program that was hashed.
func (s *Setup) sameProgram(at string) error {
	fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cell agent: %w", err)
	}
	defer unix.Close(fd)
	return sameFile(fd)
}

func sameFile(fd int) error {
	var here, hashed unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &here), unix.Fstat(imageFD, &hashed)); err != nil {
		return fmt.Errorf("look at the cell agent: %w", err)
	}
	if here.Dev != hashed.Dev || here.Ino != hashed.Ino {
		return errors.New("the cell agent's file was exchanged")
	}
	return nil
}

// prepare does everything that can be undone by ending the process.
func prepare(s *Setup, sc scope) (Report, error) {
	var report Report
	// Asked before /proc is that of the new namespace.
	report.PidNS, _ = os.Readlink("/proc/self/ns/pid")
	if err := sc.join(s.Tasks); err != nil {
		return report, fmt.Errorf("join a cgroup: %w", err)
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
	rules, notes, err := confine(*s, sc)
	s.rules = rules
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
