package claudecli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// hidden are directories of the machine of which cells of the host-supervisor
// driver do not see the machine's own files.
var hidden = []string{"/tmp", "/var/tmp", "/run", "/dev", "/root"}

// Visible gives a path of a binary that cells see too: the path itself, or a
// link or copy that the function that comes with it removes.
func Visible(path string) (string, func(), error) {
	none := func() {}
	inside := false
	for _, dir := range hidden {
		inside = inside || strings.HasPrefix(path, dir+"/")
	}
	if !inside {
		return path, none, nil
	}
	dir, err := os.MkdirTemp("/var/lib", "airlock-claude-")
	if err != nil {
		return "", none, fmt.Errorf("cells do not see %s: %w", path, err)
	}
	remove := func() { _ = os.RemoveAll(dir) }
	to := filepath.Join(dir, "claude")
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // other users run it
		remove()
		return "", none, err
	}
	if os.Link(path, to) == nil {
		return to, remove, nil
	}
	if err := copyProgram(path, to); err != nil {
		remove()
		return "", none, err
	}
	return to, remove, nil
}

func copyProgram(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // other users run it
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return err
}
