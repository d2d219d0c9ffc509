package heads

import (
	"errors"
	"fmt"
	"os"

	"github.com/airlock-host/airlock/host/internal/filelock"
)

// takeLock takes the file of heads for this process: two hosts that append to
// one file would each prove the other's journals wrong.
func takeLock(path string) (*os.File, error) {
	f, err := filelock.Take(path)
	var held filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("%s is taken: another host (process %d) writes these heads; give this one a governance.head.file of its own, or stop the other", path, held.PID)
	case err != nil:
		return nil, fmt.Errorf("lock the file of heads: %w", err)
	}
	return f, nil
}
