package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// gone is the token of a revoked grant.
const gone = "revoked"

// tokens is the file. It is replaced whole, so that a crash leaves the old one
// or the new one. The lock is a file beside it: at a reload two processes of
// the plugin work for a moment.
type tokens struct{ path string }

func (t *tokens) add(ctx context.Context, label, token string) (string, error) {
	_, err := t.change(ctx, func(lines []string) ([]string, error) {
		at := find(lines, label)
		if at < 0 {
			return append(lines, label+" "+token), nil
		}
		if _, token, _ = strings.Cut(lines[at], " "); token == gone {
			return nil, plugin.FailedPrecondition("the grant was revoked")
		}
		return lines, nil
	})
	return token, err
}

func (t *tokens) remove(ctx context.Context, labels []string) ([]byte, error) {
	return t.change(ctx, func(lines []string) ([]string, error) {
		for _, label := range labels {
			if at := find(lines, label); at >= 0 {
				lines[at] = label + " " + gone
			} else {
				lines = append(lines, label+" "+gone)
			}
		}
		return lines, nil
	})
}

// alive are the labels that have a token.
func (t *tokens) alive(labels []string) (alive []string, err error) {
	lines, err := t.read()
	for _, label := range labels {
		if at := find(lines, label); at >= 0 && lines[at] != label+" "+gone {
			alive = append(alive, label)
		}
	}
	return alive, err
}

// read is empty while there is no file. Without its directory, though, nobody
// can say what is in it.
func (t *tokens) read() ([]string, error) {
	b, err := os.ReadFile(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(t.path))
		return nil, err
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' }), err
}

// change reads, changes and replaces the file under its lock.
func (t *tokens) change(ctx context.Context, by func([]string) ([]string, error)) ([]byte, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	lines, err := t.read()
	if err != nil {
		return nil, err
	}
	if lines, err = by(lines); err != nil {
		return nil, err
	}
	content := []byte(strings.Join(append(lines, ""), "\n"))
	tmp := t.path + "." + rand.Text()
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp)
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, t.path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(t.path))
	if err != nil {
		return nil, err
	}
	return content, errors.Join(dir.Sync(), dir.Close())
}

// lock waits for the lock until ctx ends. The kernel takes it from a process
// that dies.
func (t *tokens) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(t.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		}
	}
}
