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
// Notes say what was done, weakest first. rules, unless -1, are for the agent to
// put what it starts under: the kernel makes a domain of its own for each
// thread that takes them on, and threads of different ones could not signal or
// look after the same workload. A thread that execs the agent takes them on.
func confine(s Setup, sc scope) (rules int, notes []string, err error) {
	rules = -1
	if s.Processes > 0 {
		lim := unix.Rlimit{Cur: s.Processes, Max: s.Processes}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &lim); err != nil {
			return rules, nil, fmt.Errorf("limit processes: %w", err)
		}
	}
	if err := sc.call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return rules, nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	notes = append(notes, "no_new_privs")
	if s.DropCapabilities {
		if err := dropCapabilities(sc); err != nil {
			return rules, nil, fmt.Errorf("drop capabilities: %w", err)
		}
		notes = append(notes, "few capabilities for the cell agent, none for another uid")
	}
	if len(s.Writable) == 0 {
		return rules, notes, nil
	}
	rules, note, err := writeRules(s.Writable)
	if err != nil {
		return rules, nil, fmt.Errorf("landlock: %w", err)
	}
	notes = append(notes, note)
	if rules < 0 || sc == allThreads {
		return rules, notes, nil
	}
	err = errors.Join(TakeOn(rules), unix.Close(rules))
	return -1, notes, err
}

// needed are the capabilities that a stage itself needs beside those that the
// agent keeps: for mounts and the host's name, for the loopback, and to drop.
func needed() []uintptr { return []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP} }

// BoundThread leaves this thread, which must be locked and used for nothing but
// starting agents that are their own stage, no other capability to give to
// them. A stage then has a few to drop on each of its threads, not forty.
func BoundThread() error {
	return oneThread.dropBounding(all(append(kept(), needed()...)))
}

// all are the capabilities that this kernel knows, without some.
func all(without []uintptr) (out []uintptr) {
	for c := uintptr(0); ; c++ {
		set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return out
		}
		if set != 0 && !slices.Contains(without, c) {
			out = append(out, c)
		}
	}
}

// dropCapabilities leaves the agent what is kept. Before an exec the bounding
// set is enough; without one every thread gives its own up too.
func dropCapabilities(sc scope) error {
	err := sc.dropBounding(all(kept()))
	if err == nil && sc == allThreads {
		err = sc.keepOnly(kept())
	}
	return err
}
