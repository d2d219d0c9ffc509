package cellagent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The cell agent in a VM is two processes. The init, here, has the devices: it
// makes the place, relays the volumes, and does what the driver asks over the
// control port. The agent proper is its child, like in any other cell. They are
// two because a process that forks must never wait for a file system that it
// serves itself.

// vmInit is the init of a VM.
type vmInit struct {
	log    io.Writer
	agent  *exec.Cmd
	gone   chan struct{} // closed when the agent has ended
	rekey  *os.File
	volume []*volume
	once   sync.Once
}

// linkPorts are the ports of the link: with two, a host can prove itself while
// another one, or what is left of it, is still connected.
var linkPorts = []string{"airlock.link0", "airlock.link1"}

const (
	ctlPort   = "airlock.ctl"
	initDir   = "/airlock" // in the initramfs
	cellGroup = "/sys/fs/cgroup/cell"
	holdTime  = 10 * time.Second
)

// vmMain is the init. args are groups of modules to load beside "base". It
// returns only when the VM cannot be used; the kernel then panics, and the
// driver sees the end of the VM.
func vmMain(args []string, stderr io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("vm: not the init of a VM")
	}
	undumpable()
	for _, m := range earlyMounts {
		if err := m.mount(""); err != nil {
			return err
		}
	}
	if err := loadModules(filepath.Join(initDir, "modules"), args); err != nil {
		return err
	}
	v := &vmInit{log: stderr, gone: make(chan struct{})}
	ctl, err := findPort(ctlPort)
	if err != nil {
		return fmt.Errorf("control port: %w", err)
	}
	return serveControl(ctl, v.handle)
}

func (v *vmInit) handle(req *ctlRequest) error {
	switch req.Op {
	case "setup":
		if req.Setup == nil {
			return errors.New("setup without its content")
		}
		err := errors.New("set up already")
		v.once.Do(func() { err = v.setup(req.Setup) })
		return err
	case "ping":
		return nil
	case "stop":
		go v.stop()
		return nil
	case "hold":
		for _, vol := range v.volume {
			if err := vol.hold(holdTime); err != nil {
				v.unhold()
				return err
			}
		}
		unix.Sync()
		return nil
	case "unhold":
		v.unhold()
		return nil
	case "restored":
		if req.Reset == nil {
			return errors.New("restored without its content")
		}
		return v.restored(req.Reset)
	}
	return fmt.Errorf("unknown operation %q", req.Op)
}

func (v *vmInit) unhold() {
	for _, vol := range v.volume {
		vol.unhold()
	}
}

// setup makes the place and starts the agent in it.
func (v *vmInit) setup(s *vmSetup) error {
	if err := renew(&s.Reset); err != nil {
		return err
	}
	var links []*vmPort
	for _, name := range linkPorts {
		p, err := findPort(name)
		if err != nil {
			return fmt.Errorf("link port: %w", err)
		}
		links = append(links, p)
	}
	if err := buildRoot(newRoot); err != nil {
		return err
	}
	for _, vol := range s.Volumes {
		m, err := mountVolume(vol, newRoot)
		if err != nil {
			return fmt.Errorf("volume at %s: %w", vol.Target, err)
		}
		v.volume = append(v.volume, m)
	}
	// What the kernel has read is not needed again, and it is memory.
	program, err := os.Open(filepath.Join(initDir, "init"))
	if err != nil {
		return err
	}
	defer program.Close()
	_ = os.RemoveAll(filepath.Join(initDir, "modules"))
	if err := enterRoot(newRoot); err != nil {
		return err
	}
	if err := identify(s.Hostname, s.Reset.MachineID); err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if s.Network != nil {
		if err := configureNetwork(s.Network); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	if err := limitCell(s.Pids); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	return v.start(links, program, s.Secret)
}

// start starts the agent proper.
func (v *vmInit) start(links []*vmPort, program *os.File, secret []byte) error {
	secretR, secretW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer secretR.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	v.rekey = os.NewFile(uintptr(pair[0]), "rekey")
	theirs := os.NewFile(uintptr(pair[1]), "rekey")
	defer theirs.Close()
	passed := []*os.File{secretR}
	for _, p := range links {
		passed = append(passed, p.f)
	}
	passed = append(passed, theirs)
	v.agent = &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(int(program.Fd())),
		Args: []string{programName, "serve", "--secret-fd", "3", "--port-fd", "4", "--rekey-fd", strconv.Itoa(4 + len(links)), "--cgroup", cellGroup},
		Env:  []string{"PATH=" + defaultPath}, Dir: "/", Stdout: v.log, Stderr: v.log,
		ExtraFiles:  passed,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := v.agent.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	for _, p := range links {
		_ = p.Close()
	}
	_, err = secretW.Write(secret)
	_ = secretW.Close()
	go func() {
		_ = v.agent.Wait()
		close(v.gone)
		v.off() // a VM without its agent is of no use
	}()
	return err
}

// stop asks the agent to end its sessions, and turns the VM off.
func (v *vmInit) stop() {
	if v.agent == nil {
		v.off()
		return
	}
	_ = v.agent.Process.Signal(syscall.SIGTERM)
}

func (v *vmInit) off() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// restored makes a VM that was saved another one than it was.
func (v *vmInit) restored(r *vmReset) error {
	if len(r.Secret) != secretBytes {
		return errors.New("no new link secret")
	}
	if err := renew(r); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/machine-id", []byte(r.MachineID+"\n"), 0o444); err != nil {
		return err
	}
	if _, err := v.rekey.Write(r.Secret); err != nil {
		return fmt.Errorf("give the agent its new secret: %w", err)
	}
	if _, err := io.ReadFull(v.rekey, make([]byte, 1)); err != nil {
		return fmt.Errorf("the agent has not taken its new secret: %w", err)
	}
	v.unhold()
	return nil
}

// loadModules loads what the initramfs holds, in the order of the names:
// NUMBER.GROUP.NAME.ko.
func loadModules(dir string, groups []string) error {
	files, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	wanted := map[string]bool{"base": true}
	for _, g := range groups {
		wanted[g] = true
	}
	for _, f := range files {
		part := strings.SplitN(f.Name(), ".", 3)
		if len(part) != 3 || !wanted[part[1]] {
			continue
		}
		m, err := os.Open(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(m.Fd()), "", 0)
		_ = m.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", f.Name(), err)
		}
	}
	return nil
}
