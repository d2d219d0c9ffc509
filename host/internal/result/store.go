package result

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	manifestName = "manifest.json"
	tarName      = "files.tar.gz"
	tempPrefix   = ".new-"
)

// Store keeps results below a directory, one directory for each mission.
type Store struct {
	Dir    string
	Limits Limits
	Now    func() time.Time // nil: time.Now
}

// Stored is the result of one mission.
type Stored struct{ dir string }

func (s *Store) path(missionID string) string {
	sum := sha256.Sum256([]byte(missionID))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:]))
}

// Open finds the result of a mission; ErrNone when there is none.
func (s *Store) Open(missionID string) (*Stored, error) {
	r := &Stored{dir: s.path(missionID)}
	_, err := os.Stat(filepath.Join(r.dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	return r, err
}

// Remove drops the result of a mission; none is fine.
func (s *Store) Remove(missionID string) error { return os.RemoveAll(s.path(missionID)) }

// Sweep drops what collections that were cut short have left. No collection may
// run meanwhile.
func (s *Store) Sweep() error {
	list, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range list {
		if strings.HasPrefix(d.Name(), tempPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, d.Name())))
		}
	}
	return errors.Join(errs...)
}

// OpenManifest opens the manifest's JSON text.
func (r *Stored) OpenManifest() (*os.File, error) { return r.open(manifestName) }

// OpenTar opens the tar of what is kept, compressed with gzip.
func (r *Stored) OpenTar() (*os.File, error) { return r.open(tarName) }

func (r *Stored) open(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(r.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone // removed meanwhile
	}
	return f, err
}

// Manifest reads the manifest.
func (r *Stored) Manifest() (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, manifestName))
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", r.dir, err)
	}
	return m, nil
}

// put makes a finished collection the mission's result. The result of an older
// generation gives way.
func (s *Store) put(temp, missionID string) error {
	dir := s.path(missionID)
	if err := syncDir(temp); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	return syncDir(s.Dir)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
