// Package kvm finds out whether KVM really runs code here. It imports the
// standard library and golang.org/x/sys only. The one idea: a /dev/kvm that
// opens is no capability. On some machines every instruction of a guest's
// kernel is emulated, so the probe lets one loop run and takes the time.
package kvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// State is what a probe has found.
type State string

// Works needs more than 50 million instructions a second; Emulated is a KVM
// that is there and slower than that, or does not get to the end of the loop.
const (
	Works    State = "works"
	Absent   State = "absent"
	Emulated State = "present-but-emulated"
	Unusable State = "present-but-unusable"
)

const (
	iterations = 200_000
	// perLoop is how many instructions an iteration of the loop is.
	perLoop   = 2
	threshold = 50e6 // instructions a second
	// giveUp bounds a probe.
	giveUp = 5 * time.Second
)

// Result is a probe's result.
type Result struct {
	State State `json:"state"`
	// PerSecond is how many instructions a second the guest did; 0 = none.
	PerSecond float64 `json:"per_second"`
	Detail    string  `json:"detail"`
	BootID    string  `json:"boot_id"`
}

// Working says whether KVM can be used.
func (r Result) Working() bool { return r.State == Works }

// judge says what a loop that took so long means.
func judge(took time.Duration) Result {
	rate := float64(iterations*perLoop) / max(took.Seconds(), 1e-9)
	r := Result{State: Works, PerSecond: rate, Detail: fmt.Sprintf("%.1f million instructions a second", rate/1e6)}
	if rate < threshold {
		r.State = Emulated
		r.Detail += ": the guest's kernel is emulated, not run"
	}
	return r
}

// Cached runs a probe once per boot of the machine; file holds what it found.
// A device that has come or gone since is looked at anew.
func Cached(file, bootID string, probe func() Result) Result {
	if b, err := os.ReadFile(file); err == nil {
		var r Result
		_, missing := os.Stat(device)
		if json.Unmarshal(b, &r) == nil && r.BootID == bootID && (r.State == Absent) == errors.Is(missing, fs.ErrNotExist) && r.State != Unusable {
			return r
		}
	}
	r := probe()
	r.BootID = bootID
	if b, err := json.Marshal(r); err == nil {
		next := file + ".new"
		if os.WriteFile(next, b, 0o600) == nil {
			_ = os.Rename(next, file)
		}
	}
	return r
}

const (
	device = "/dev/kvm"

	apiVersion      = 12
	getAPIVersion   = 0xae00
	createVM        = 0xae01
	getVCPUMmapSize = 0xae04
	createVCPU      = 0xae41
	setUserMemory   = 0x4020ae46
	run             = 0xae80
	setRegs         = 0x4090ae82
	getSregs        = 0x8138ae83
	setSregs        = 0x4138ae84
	exitHlt         = 5
)

type userMemory struct {
	slot, flags              uint32
	guest, size, userAddress uint64
}

type regs struct {
	rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp uint64
	r8, r9, r10, r11, r12, r13, r14, r15   uint64
	rip, rflags                            uint64
}

// loop is: 66 49 dec ecx; 75 fc jnz loop; f4 hlt, in real mode.
var loop = []byte{0x66, 0x49, 0x75, 0xfc, 0xf4}

// Probe runs the loop.
func Probe() Result {
	type outcome struct {
		took time.Duration
		err  error
	}
	got := make(chan outcome, 1)
	go func() {
		took, err := timeLoop()
		got <- outcome{took, err}
	}()
	var took time.Duration
	var err error
	select {
	case o := <-got:
		took, err = o.took, o.err
	case <-time.After(2 * giveUp): // the thread stays in the kernel
		err = fmt.Errorf("%w in %v", errNotRun, 2*giveUp)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Result{State: Absent, Detail: "there is no " + device}
	case errors.Is(err, errNotRun):
		return Result{State: Emulated, Detail: err.Error()}
	case err != nil:
		return Result{State: Unusable, Detail: err.Error()}
	}
	return judge(took)
}

var errNotRun = errors.New("the guest did not get to the end of a loop")

func ioctl(fd int, request, arg uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func timeLoop() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sys, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: device, Err: err}
	}
	defer unix.Close(sys)
	if v, err := ioctl(sys, getAPIVersion, 0); err != nil || v != apiVersion {
		return 0, fmt.Errorf("the KVM API has version %d (%w)", v, err)
	}
	vm, err := ioctl(sys, createVM, 0)
	if err != nil {
		return 0, fmt.Errorf("create a VM: %w", err)
	}
	defer unix.Close(vm)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Munmap(mem) }()
	copy(mem, loop)
	um := userMemory{guest: 0x1000, size: 4096, userAddress: uint64(uintptr(unsafe.Pointer(&mem[0])))}
	if _, err := ioctl(vm, setUserMemory, uintptr(unsafe.Pointer(&um))); err != nil {
		return 0, fmt.Errorf("give the VM memory: %w", err)
	}
	cpu, err := ioctl(vm, createVCPU, 0)
	if err != nil {
		return 0, fmt.Errorf("create a CPU: %w", err)
	}
	defer unix.Close(cpu)
	size, err := ioctl(sys, getVCPUMmapSize, 0)
	if err != nil {
		return 0, err
	}
	shared, err := unix.Mmap(cpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Munmap(shared) }()
	if err := enter(cpu); err != nil {
		return 0, fmt.Errorf("set registers: %w", err)
	}
	return timeRun(cpu, shared)
}

// enter points the CPU at the loop, in real mode with flat segments.
func enter(cpu int) error {
	var sregs [312]byte
	if _, err := ioctl(cpu, getSregs, uintptr(unsafe.Pointer(&sregs[0]))); err != nil {
		return err
	}
	// struct kvm_sregs begins with cs: base (8 bytes), limit (4), selector (2).
	clear(sregs[0:8])
	clear(sregs[12:14])
	if _, err := ioctl(cpu, setSregs, uintptr(unsafe.Pointer(&sregs[0]))); err != nil {
		return err
	}
	r := regs{rip: 0x1000, rcx: iterations, rflags: 2}
	_, err := ioctl(cpu, setRegs, uintptr(unsafe.Pointer(&r)))
	return err
}

func timeRun(cpu int, shared []byte) (time.Duration, error) {
	begun := time.Now()
	for {
		_, err := ioctl(cpu, run, 0)
		took := time.Since(begun)
		switch reason := *(*uint32)(unsafe.Pointer(&shared[8])); {
		case took > giveUp:
			return 0, fmt.Errorf("%w in %v", errNotRun, giveUp)
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("run: %w", err)
		case reason == exitHlt:
			return took, nil
		default:
			return 0, fmt.Errorf("%w: exit reason %d", errNotRun, reason)
		}
	}
}
