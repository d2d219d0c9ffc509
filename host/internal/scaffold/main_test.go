package scaffold_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bin holds airlock and airlock-cell beside each other; root is the checkout.
var bin, root string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if root, err = filepath.Abs("../../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if bin = os.Getenv("AIRLOCK_BIN"); bin == "" { // `make test` has built them
		if bin, err = os.MkdirTemp("", "al"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(bin)
		for _, name := range []string{"airlock", "airlock-cell"} {
			cmd := exec.Command("go", "build", "-o", filepath.Join(bin, name), "./host/cmd/"+name)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v: %s\n", name, err, out)
				return 1
			}
		}
	}
	return m.Run()
}

// in runs a command with airlock on PATH, and fails the test with its words.
func in(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	if name == "airlock" { // this process has another PATH
		name = filepath.Join(bin, name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "AIRLOCK_SDK="+root, "CGO_ENABLED=0",
		"AIRLOCK_CELL_AGENT="+filepath.Join(bin, "airlock-cell"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
