package packages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Versions of the packages; the newer ones hold a host that says so.
const oldVersion, newVersion = "1.0.0", "1.1.0"

// work is where everything of these tests lies; TestMain fills and removes it.
var work string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if work, err = os.MkdirTemp("", "alpack"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(work)
	return m.Run()
}

// need ends a test that lacks something of the machine.
func need(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// binDir is where the programs lie.
func binDir() (string, error) {
	dir := os.Getenv("AIRLOCK_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "airlock")); err != nil {
		return "", fmt.Errorf("the programs are missing (run make build): %w", err)
	}
	return dir, nil
}

// pack makes packages below work and gives their directory. settings are further
// variables of hack/packages.sh.
func pack(name, bin, version string, settings ...string) (string, error) {
	tools, err := filepath.Abs("../../bin/tools")
	if err != nil {
		return "", err
	}
	path := tools + string(os.PathListSeparator) + os.Getenv("PATH")
	if _, err := os.Stat(filepath.Join(tools, "nfpm")); err != nil {
		return "", fmt.Errorf("nfpm is missing (make packages brings it): %w", err)
	}
	out := filepath.Join(work, name)
	cmd := exec.Command("../../hack/packages.sh")
	cmd.Env = append(os.Environ(), "PATH="+path, "BIN="+bin, "OUT="+out, "PACKAGE_VERSION="+version)
	cmd.Env = append(cmd.Env, settings...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("hack/packages.sh: %w\n%s", err, text)
	}
	return out, nil
}

// oldPackages are all packages of both kinds, made once.
var oldPackages = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("AIRLOCK_PACKAGES"); dir != "" { // made before, by whoever works on the VM's script
		return filepath.Join(dir, "old"), nil
	}
	bin, err := binDir()
	if err != nil {
		return "", err
	}
	return pack("old", bin, oldVersion)
})

// inGuest are the plugins that are installed in the VM.
const inGuest = "isolation-host-supervisor runtime-command"

// newPackages are those that the old ones are upgraded to, deb only.
var newPackages = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("AIRLOCK_PACKAGES"); dir != "" {
		return filepath.Join(dir, "new"), nil
	}
	bin, err := binDir()
	if err != nil {
		return "", err
	}
	newer := filepath.Join(work, "newer-bin")
	if err := os.MkdirAll(newer, 0o755); err != nil {
		return "", err
	}
	err = errors.Join(os.Symlink(filepath.Join(bin, "plugins"), filepath.Join(newer, "plugins")),
		os.Symlink(filepath.Join(bin, "airlock-cell"), filepath.Join(newer, "airlock-cell")),
		os.Symlink(filepath.Join(bin, "airlock-verify"), filepath.Join(newer, "airlock-verify")))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X github.com/airlock-host/airlock/host/internal/version.Version="+newVersion,
		"-o", filepath.Join(newer, "airlock"), "./host/cmd/airlock")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the newer host: %w\n%s", err, text)
	}
	return pack("new", newer, newVersion, "KINDS=deb", "PLUGINS="+inGuest)
})

// output runs a program and gives what it says.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}
