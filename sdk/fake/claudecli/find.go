package claudecli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Find is the path of the CLI that the tests use: AIRLOCK_CLAUDE, or
// bin/tools/claude/claude of the repository that the working directory is in.
func Find() (string, error) {
	if path := os.Getenv("AIRLOCK_CLAUDE"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("AIRLOCK_CLAUDE: %w", err)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			path := filepath.Join(dir, "bin", "tools", "claude", "claude")
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the Claude Code CLI is not there: `make test-deps` fetches it, or AIRLOCK_CLAUDE names one")
		}
		dir = up
	}
}

// T is what Need uses of a testing.TB.
type T interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// Need is Find for a test: without the CLI the test is skipped, or fails where
// AIRLOCK_REQUIRE is set.
func Need(t T) string {
	t.Helper()
	path, err := Find()
	if err == nil {
		return path
	}
	if os.Getenv("AIRLOCK_REQUIRE") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}
