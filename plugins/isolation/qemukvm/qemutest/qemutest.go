// Package qemutest gives tests of the qemu-kvm driver, here and of the whole
// host, an image to boot and the agent to put into it. It imports the standard
// library only. The one idea: the image is built by the code that users
// build theirs with, once for every content, and kept in the cache directory.
package qemutest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Image is what a test boots.
type Image struct {
	// Dir is the image's directory: root file system and kernel.
	Dir string
	// QEMU is the QEMU program.
	QEMU string
}

const module = "github.com/airlock-host/airlock"

// CacheDir is where images and kernels are kept: AIRLOCK_CACHE, else below the
// user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("AIRLOCK_CACHE"); dir != "" {
		return dir, nil
	}
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "airlock"), nil
}

// Build gives a small image, with busybox for a root file system. An error says
// what is missing on the machine; hack/test-deps.sh installs it.
func Build() (Image, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return Image{}, missing("busybox", err)
	}
	return BuildWith("", func(tree string) error { return Tree(tree, busybox) }, busybox)
}

// BuildWith gives an image of the tree that fill makes in a new directory. It is
// built again when the content of one of the files is another one, or the name:
// that stands for fill's own code.
func BuildWith(name string, fill func(tree string) error, files ...string) (Image, error) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return Image{}, missing("QEMU", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return Image{}, err
	}
	kernels, _ := filepath.Glob(filepath.Join(cache, "kernel", "linux-image-*.deb"))
	if len(kernels) == 0 {
		return Image{}, missing("a kernel package", errors.New("none in "+filepath.Join(cache, "kernel")))
	}
	kernel := kernels[len(kernels)-1]
	root, err := moduleDir()
	if err != nil {
		return Image{}, err
	}
	key, err := keyOf(filepath.Join(root, "host", "internal", "image"), append([]string{kernel}, files...)...)
	if err != nil {
		return Image{}, err
	}
	if name != "" {
		key = name + "-" + key
	}
	dir := filepath.Join(cache, "image-"+key)
	unlock, err := lock(filepath.Join(cache, "image.lock"))
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return Image{dir, qemu}, nil
	}
	next, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(next)
	if err := build(next, root, kernel, fill); err != nil {
		return Image{}, err
	}
	return Image{dir, qemu}, os.Rename(filepath.Join(next, "image"), dir)
}

func missing(what string, err error) error {
	return fmt.Errorf("%s is missing (run hack/test-deps.sh): %w", what, err)
}

func moduleDir() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// keyOf names an image by everything that it is made of.
func keyOf(source string, files ...string) (string, error) {
	code, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, "image 2")
	for _, name := range append(code, files...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(name))
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// build makes the root's tree and builds the image of it, with the code of
// airlock image build.
func build(dir, root, kernel string, fill func(tree string) error) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	tree := filepath.Join(dir, "tree")
	if err := fill(tree); err != nil {
		return err
	}
	tool := filepath.Join(dir, "imagetool")
	cmd := exec.Command("go", "build", "-o", tool, module+"/host/internal/image/imagetool")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build imagetool: %w: %s", err, out)
	}
	cmd = exec.Command(tool, filepath.Join(dir, "image"), tree, kernel)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image: %w: %s", err, out)
	}
	return os.Chmod(filepath.Join(dir, "image"), 0o755)
}

// Tree makes a directory that is good for a root: busybox under all of its
// names.
func Tree(dir, busybox string) error {
	for _, d := range []string{"bin", "etc", "root", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "busybox"), program, 0o755); err != nil {
		return err
	}
	names, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("list busybox's names: %w", err)
	}
	for _, n := range strings.Fields(string(names)) {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", n)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return errors.Join(
		// Debian's static busybox has none.
		os.WriteFile(filepath.Join(dir, "bin", "nohup"), []byte("#!/bin/sh\ntrap '' HUP\nexec \"$@\"\n"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc", "passwd"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "etc", "group"), []byte("root:x:0:\n"), 0o644))
}

// Agent builds the cell agent as it is shipped and gives its SHA-256.
func Agent(dir string) (path, sum string, err error) {
	root, err := moduleDir()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, "airlock-cell")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, module+"/host/cmd/airlock-cell")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build the cell agent: %w: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	s := sha256.Sum256(b)
	return path, hex.EncodeToString(s[:]), os.Chmod(path, 0o755)
}

// lock keeps two test programs from building the same image.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
