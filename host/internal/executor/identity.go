package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"
)

// identityFile is the executor id's file in the data directory (seed 000,
// "Files on disk").
const identityFile = "identity"

// LoadIdentity reads dir/identity, or makes it: a new UUIDv7, mode 0600,
// written whole or not at all. A file that cannot be read or holds no UUID is an
// error that names it, and is left as it is: a new id would orphan every mission
// that the orchestrator has routed here.
func LoadIdentity(dir string) (string, error) {
	path := filepath.Join(dir, identityFile)
	id, err := readIdentity(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	fresh, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("identity %s: %w", path, err)
	}
	return fresh.String(), writeIdentity(path, fresh.String())
}

// AdoptIdentity copies the identity of an older sandbox (legacyDir/identity)
// into dir if dir has none yet and the older one is a UUID (rulings 9). It says
// whether it did; a legacy file that is missing or no UUID is no error.
func AdoptIdentity(dir, legacyDir string) (bool, error) {
	if legacyDir == "" {
		return false, nil
	}
	path := filepath.Join(dir, identityFile)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	id, err := readIdentity(filepath.Join(legacyDir, identityFile))
	if err != nil {
		return false, nil
	}
	return true, writeIdentity(path, id)
}

func readIdentity(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("identity: %w", err) // names the path
	}
	s := strings.TrimSpace(string(raw))
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 || id == uuid.Nil {
		return "", fmt.Errorf("identity %s: does not hold a UUID; restore it, or remove it to register as a new executor", path)
	}
	return s, nil
}

func writeIdentity(path, id string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	// WriteFile syncs the file before the rename.
	if err := renameio.WriteFile(path, []byte(id+"\n"), 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("identity %s: %w", path, err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("identity %s: %w", path, err)
	}
	return nil
}
