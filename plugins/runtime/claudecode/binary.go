package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// binary is the CLI as it is installed on this machine.
type binary struct {
	path    string
	digest  string // SHA-256, in hex
	version release
}

// inspect looks at the binary. The error says to an operator what to do.
func inspect(ctx context.Context, c *compiled, dir string) (*binary, error) {
	path := c.onHost()
	hint := ""
	if c.HostBinary == nil || *c.HostBinary == "" {
		hint = "; set binary to where Claude Code is installed, and host_binary to where this machine has the same file when the cells have files of their own"
	}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no Claude Code at %s on this machine: its gates cannot be tried out%s", path, hint)
	case err != nil:
		return nil, fmt.Errorf("Claude Code cannot be looked at: %w", err) //nolint:staticcheck // a name
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file: name the native binary of Claude Code", path)
	case st.Mode()&0o111 == 0:
		return nil, fmt.Errorf("%s cannot be executed: chmod 755 it", path)
	case st.Mode()&0o022 != 0:
		return nil, fmt.Errorf("%s can be changed by others (mode %04o): chmod 755 it", path, st.Mode().Perm())
	}
	b := &binary{path: path}
	if b.digest, err = digestFile(ctx, path); err != nil {
		return nil, fmt.Errorf("%s cannot be read by this plugin's user: %w", path, err)
	}
	short, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(short, path, "--version")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "CLAUDE_CONFIG_DIR=" + dir, "PATH=/usr/bin:/bin", "DISABLE_AUTOUPDATER=1"}
	ownGroup(cmd)
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			said = ": " + clip(firstLine(string(e.Stderr)), 200)
		}
		return nil, fmt.Errorf("%s --version failed (%w)%s; is it the native binary for this machine?", path, err, said)
	}
	text := firstLine(string(out))
	number, product, _ := strings.Cut(text, " ")
	if b.version, err = parseRelease(number); err != nil || !strings.Contains(product, "Claude Code") {
		return nil, fmt.Errorf("%s is not Claude Code: its --version says %.80q", path, text)
	}
	if c.wanted != nil && !c.wanted.has(b.version) {
		return nil, fmt.Errorf("%s has the version %s, which is not in version_range %q: install another one, or change the range", path, b.version, c.VersionRange)
	}
	return b, nil
}

// digestFile reads a file of some 400 MB; it stops when ctx ends.
func digestFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, buf := sha256.New(), make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // never fails
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}
