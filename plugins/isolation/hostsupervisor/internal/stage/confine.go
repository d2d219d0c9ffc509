package stage

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// kept are the capabilities of the cell agent: it changes owners of the files
// it places, becomes the workload's user, and kills what the workload started.
func kept() []uintptr {
	return []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER,
		unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID}
}

// confine gives up what neither the agent nor anything that it starts needs.
// Notes say what was done, weakest first.
func confine(s Setup) (notes []string, err error) {
	if s.Processes > 0 {
		lim := unix.Rlimit{Cur: s.Processes, Max: s.Processes}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lim); err != nil {
			return nil, fmt.Errorf("limit processes: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	notes = append(notes, "no_new_privs")
	if s.DropCapabilities {
		if err := dropCapabilities(); err != nil {
			return nil, fmt.Errorf("drop capabilities: %w", err)
		}
		notes = append(notes, "few capabilities for the cell agent, none for another uid")
	}
	if len(s.Writable) > 0 {
		note, err := restrictWrites(s.Writable)
		if err != nil {
			return nil, fmt.Errorf("landlock: %w", err)
		}
		notes = append(notes, note)
	}
	return notes, nil
}

// dropCapabilities empties the bounding set of all but what is kept. The exec
// of the agent takes the rest away; the agent's children get nothing beyond.
func dropCapabilities() error {
	for c := uintptr(0); ; c++ {
		if slices.Contains(kept(), c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) && c > unix.CAP_SETFCAP {
				return nil // past the last capability that this kernel knows
			}
			return err
		}
	}
}
