package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// blobDir holds large payloads, each in a file named by its SHA-256:
// aa/aabb…. A file has its name only once its content is synced, so a file
// with a name is whole. A crash can leave one that no event refers to; it
// costs space and nothing else.
type blobDir struct {
	dir  string
	held *heldBlobs
}

func (d blobDir) file(sum []byte) string {
	name := hex.EncodeToString(sum)
	return filepath.Join(d.dir, name[:2], name)
}

// put makes the text durable and gives its SHA-256. The file is held until the
// caller releases it, when its commit is through or given up: up to then it is not
// removed, though no event refers to it yet.
func (s *Store) putBlob(text string) ([]byte, error) {
	sum := sha256.Sum256([]byte(text))
	s.blobs.held.hold(sum)
	path := s.blobs.file(sum[:])
	if err := s.writeBlob(path, text); err != nil {
		s.blobs.held.release(sum)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return nil, fmt.Errorf("%w: payload file: %w", ErrFull, err)
		}
		return nil, fmt.Errorf("write payload file: %w", err)
	}
	return sum[:], nil
}

func (s *Store) writeBlob(path, text string) error {
	sub := filepath.Dir(path)
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return syncDir(sub) // whoever made it may not have come to that
	}
	if err := os.MkdirAll(sub, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(sub, ".tmp-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(text)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := s.at(PointBlobWritten); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	if err := errors.Join(syncDir(sub), syncDir(s.blobs.dir), syncDir(s.opts.Dir)); err != nil {
		return err
	}
	return s.at(PointBlobNamed)
}

// getBlob reads a payload back and checks it.
func (s *Store) getBlob(sum []byte) (string, error) {
	if len(sum) != sha256.Size {
		return "", fmt.Errorf("%w: a payload reference has %d bytes", ErrDamaged, len(sum))
	}
	text, err := os.ReadFile(s.blobs.file(sum))
	if err != nil {
		return "", fmt.Errorf("%w: payload file: %w", ErrDamaged, err)
	}
	if got := sha256.Sum256(text); string(got[:]) != string(sum) {
		return "", fmt.Errorf("%w: payload file %s has other content than its name says", ErrDamaged, s.blobs.file(sum))
	}
	return string(text), nil
}
