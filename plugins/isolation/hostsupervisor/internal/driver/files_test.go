package driver

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

func readFile(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// links are what the descriptors of a process lead to.
func links(t *testing.T, pid int) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(procFile(pid, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(procFile(pid, "fd/"+e.Name())); err == nil {
			out = append(out, to)
		}
	}
	return out
}

func signalStop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
