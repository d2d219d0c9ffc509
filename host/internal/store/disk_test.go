package store_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// TestAFullDiskFailsClosedAndLetsAStopThrough runs on a small file system of
// its own, in a mount namespace of the child.
func TestAFullDiskFailsClosedAndLetsAStopThrough(t *testing.T) {
	t.Parallel()
	cmd := child(t, "full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		t.Fatalf("see the child's message: %v", err)
	case err != nil:
		require(t, "mount namespaces are not available: "+err.Error())
	}
}

func fullChild(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	opts := store.Options{Dir: data, Ballast: 2 << 20}
	s, err := store.Open(opts)
	if err != nil {
		return err
	}
	w := newWorkload("m")
	if err := s.Commit(ctx, w.next(time.Now())); err != nil {
		return err
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); err != nil {
		return err
	}
	// Fill the rest through the store itself.
	n := 0
	for ; ; n++ {
		b := w.with(journal.Progress, `{"v":1,"text":"`+strings.Repeat("x", 60<<10)+`"}`)
		before := *w
		if err = s.Commit(ctx, b); err != nil {
			w.head = journal.Head{TaskID: "m", JournalUUID: uuidOf("m"), Sequence: before.head.Sequence - 1, Digest: b.Events[0].PreviousHash}
			break
		}
	}
	if !errors.Is(err, store.ErrFull) || n == 0 {
		return fmt.Errorf("commit %d gave %w, want ErrFull", n, err)
	}
	if err := s.Healthy(); !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("healthy gives %w, want ErrFull", err)
	}
	if err := s.Commit(ctx, newWorkload("new").next(time.Now())); !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("a new mission gives %w, want ErrFull", err)
	}
	// What must get through does, although there is no byte left.
	rest := filepath.Join(dir, "rest")
	_ = os.WriteFile(rest, make([]byte, 24<<20), 0o600)
	for i := range 5 {
		for _, kind := range []journal.Kind{journal.Stop, journal.RevocationStarted, journal.RevocationResult, journal.StopAcknowledged, journal.Ended} {
			b := w.with(kind, `{"v":1,"evidence":"`+strings.Repeat("e", 2000)+`"}`)
			if err := s.Commit(ctx, b); err != nil {
				return fmt.Errorf("round %d: %s on a full disk: %w", i, kind, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(data, "ballast")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the ballast is still there: %w", err)
	}
	if err := s.Commit(ctx, newWorkload("new").next(time.Now())); !errors.Is(err, store.ErrFull) {
		return fmt.Errorf("a new mission in the ballast's space gives %w, want ErrFull", err)
	}
	if err := s.VerifyTask(ctx, "m"); err != nil {
		return err
	}
	// Room again: the store opens by itself, with a new ballast.
	if err := errors.Join(os.Remove(filler), os.Remove(rest)); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); s.Healthy() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("there is room, and the store says %w", s.Healthy())
		}
	}
	if info, err := os.Stat(filepath.Join(data, "ballast")); err != nil || info.Size() != opts.Ballast {
		return fmt.Errorf("no new ballast: %w", err)
	}
	if err := s.Commit(ctx, newWorkload("new").next(time.Now())); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = store.Open(opts); err != nil {
		return err
	}
	head, err := s.Head(ctx, "m")
	if err != nil || head != w.head {
		return fmt.Errorf("the head is %+v, acknowledged was %+v (%w)", head, w.head, err)
	}
	return errors.Join(s.VerifyTask(ctx, "m"), s.VerifyTask(ctx, "new"), s.Close())
}

// TestAFailedSyncPoisonsTheStore makes the kernel refuse to sync, for real.
func TestAFailedSyncPoisonsTheStore(t *testing.T) {
	t.Parallel()
	for name, errno := range map[string]syscall.Errno{"EIO": syscall.EIO, "ENOSPC at the sync": syscall.ENOSPC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := child(t, "eio", dir, "AIRLOCK_STORE_ERRNO="+strconv.Itoa(int(errno)))
			out, err := cmd.Output()
			if strings.HasPrefix(string(out), "no seccomp") {
				require(t, string(out))
			}
			if err != nil {
				t.Fatalf("see the child's message: %v", err)
			}
			s := open(t, dir) // the next start decides what is there
			head, err := s.Head(ctx, "m")
			if err != nil || head.Sequence < 3 || head.Sequence > 4 {
				t.Fatalf("%+v %v", head, err)
			}
			if err := s.VerifyTask(ctx, "m"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func deniedChild(dir string) error {
	errno, _ := strconv.Atoi(os.Getenv("AIRLOCK_STORE_ERRNO"))
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Ballast: -1})
	if err != nil {
		return err
	}
	w := newWorkload("m")
	for range 3 {
		if err := s.Commit(ctx, w.next(time.Now())); err != nil {
			return err
		}
	}
	known := w.head
	if err := denySync(uint32(errno)); err != nil {
		fmt.Println("no seccomp:", err)
		return nil
	}
	if err := s.Commit(ctx, w.next(time.Now())); !errors.Is(err, store.ErrPoisoned) {
		return fmt.Errorf("a commit without its sync gives %w, want ErrPoisoned", err)
	}
	for i, err := range []error{s.Healthy(), s.Commit(ctx, newWorkload("n").next(time.Now())), s.OutboxDone(ctx, []int64{1})} {
		if !errors.Is(err, store.ErrPoisoned) {
			return fmt.Errorf("%d: %w, want ErrPoisoned", i, err)
		}
	}
	if head, err := s.Head(ctx, "m"); err != nil || head != known {
		return fmt.Errorf("readers see %+v, known is %+v (%w)", head, known, err)
	}
	if err := s.VerifyTask(ctx, "m"); err != nil {
		return err
	}
	_ = s.Close()
	return nil
}

// denySync installs a filter for all threads: fsync and fdatasync fail.
func denySync(errno uint32) error {
	ld := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	eq := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	prog := []unix.SockFilter{
		ld(0),
		eq(unix.SYS_FSYNC, 2, 0),
		eq(unix.SYS_FDATASYNC, 1, 0),
		ret(unix.SECCOMP_RET_ALLOW),
		ret(unix.SECCOMP_RET_ERRNO | errno),
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); e != 0 && e != syscall.ENOTSUP {
		return e
	} else if e == syscall.ENOTSUP { // with cgo: the thread that installs it is enough
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if e != 0 {
		return e
	}
	return nil
}
