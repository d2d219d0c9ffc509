package daemon

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// A development host has a new data directory each time. What its claude-code
// plugin has found out about the gates of a binary is kept in the user's cache
// directory meanwhile, so that they are not tried out at each start. The plugin
// itself decides whether it still counts: it is of one binary and one plugin.

const verdictFile = "canaries.json"

// verdictOf is the plugin's own file, in a development host's directory.
func verdictOf(dir string) string {
	return filepath.Join(dir, "data", "plugins", "runtime.claude-code."+claudeAgent, verdictFile)
}

// verdictKept is where the verdict is between two development hosts; "" = there
// is no such place.
func verdictKept() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "airlock", "dev-claude", verdictFile)
}

// takeVerdict gives a new host what the one before has found out, if anything.
func takeVerdict(dir string) {
	if _, err := os.Lstat(verdictOf(dir)); err == nil {
		return // of --data-dir
	}
	if kept := verdictKept(); kept != "" {
		_ = copyVerdict(verdictOf(dir), kept) // without it the gates are tried out
	}
}

// keepVerdict keeps what a host has found out.
func keepVerdict(dir string) {
	if kept := verdictKept(); kept != "" {
		_ = copyVerdict(kept, verdictOf(dir)) // as above
	}
}

func copyVerdict(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	dir := filepath.Dir(to)
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return renameio.WriteFile(to, text, 0o600)
}
