package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/airlock-host/airlock/host/internal/filelock"
)

// lockDir takes the data directory for this process.
func lockDir(dir string) (*os.File, error) {
	f, err := filelock.Take(filepath.Join(dir, "lock"))
	var held filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, ErrLocked{Dir: dir, PID: held.PID}
	case err != nil:
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}
