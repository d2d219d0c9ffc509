package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/airlock-host/airlock/host/internal/filelock"
)

// lockDir takes the data directory for this process.
func lockDir(dir string) (*filelock.Dir, error) {
	f, err := filelock.TakeDir(dir, "lock")
	var held filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, ErrLocked{Dir: dir, PID: held.PID}
	case err != nil:
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}

// home says what is wrong when the data directory, or the database in it, is not
// the one any more that this process has open: what is committed then would be
// found by nobody.
func (s *Store) home() error {
	err := s.lock.Check()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(s.path()); err == nil && !os.SameFile(s.file, there) {
			err = fmt.Errorf("%s is another file than the one that is open", s.path())
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("data_dir %s was moved away, deleted or replaced under the host (%w): what it stores would not be found again. Stop the host, put the directory back as it was, and start the host again", s.opts.Dir, err)
}
