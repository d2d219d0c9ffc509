package plugins

import (
	"fmt"
	"strings"
)

// Code names what is wrong with an instance, for status and for tests.
type Code string

// The codes. Each has its own words for the operator.
const (
	NotFound      Code = "not_found"      // no such executable in the plugin directory
	NotExecutable Code = "not_executable" // a file without the execute bit, or no program at all
	Unsafe        Code = "unsafe"         // others could change the file or its directory
	WrongArch     Code = "wrong_arch"     // built for another machine
	LockUnusable  Code = "lock_unusable"  // the lock file is there and cannot be read
	NotLocked     Code = "not_locked"     // the lock file does not name the plugin
	WrongChecksum Code = "wrong_checksum" // the lock file names another build
	ExitsEarly    Code = "exits_early"    // it ended before it could be used
	Junk          Code = "junk_on_stdout" // it printed something else than the handshake
	StartTimeout  Code = "start_timeout"  // it printed no handshake in time
	WrongMagic    Code = "wrong_magic"    // it was built for another host program
	WrongProtocol Code = "wrong_protocol" // its handshake is one that this host does not speak
	WrongKind     Code = "wrong_kind"     // it says that it is of another kind than its file name
	WrongName     Code = "wrong_name"     // it says that it has another name than its file
	WrongContract Code = "wrong_contract" // no contract in common
	NotDescribed  Code = "not_described"  // Describe failed
	InvalidConfig Code = "invalid_config" // its config block has errors
	Refused       Code = "refused"        // Configure failed
	CrashLoop     Code = "crash_loop"     // it ended too often
	HostTrouble   Code = "host_trouble"   // the host could not do its part
)

// Fault is why an instance cannot be used.
type Fault struct {
	Code Code
	// Summary says what is wrong, with paths and values.
	Summary string
	// Advice says what to do; may be empty.
	Advice string
	// Words are the last lines that the plugin wrote to standard error, made
	// safe to print.
	Words []string
	// Retry says that the same start may go well later.
	Retry bool

	restartFor string // the attribute of a config that only a new process can take
}

// Error is the operator's message, one line.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Summary)
	if f.Advice != "" {
		b.WriteString(": " + f.Advice)
	}
	for n, word := range f.Words {
		if n == 0 {
			b.WriteString("; its last words: ")
		} else {
			b.WriteString(" | ")
		}
		fmt.Fprintf(&b, "%q", word)
	}
	return b.String()
}

func faultf(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Summary: fmt.Sprintf(format, args...)}
}

func (f *Fault) advise(format string, args ...any) *Fault {
	f.Advice = fmt.Sprintf(format, args...)
	return f
}

func (f *Fault) retry() *Fault {
	f.Retry = true
	return f
}

func (f *Fault) words(words []string) *Fault {
	f.Words = words
	return f
}
