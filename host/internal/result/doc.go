// Package result keeps what a mission changed in its workspace: it compares
// the workspace with what it began as, and stores the difference as a tar and
// a manifest until it is removed. It imports nothing of Airlock.
//
// The one idea: a workspace is hostile. Every name in it is opened one
// component at a time, never through a symlink; only regular files are read;
// nothing in it can make the host read, write or wait for anything else.
package result

import (
	"errors"
	"fmt"
	"time"
)

// ErrNone says that nothing is kept of a mission.
var ErrNone = errors.New("no files are kept")

// Type is what a path is.
type Type string

// Types of a path.
const (
	File    Type = "file"
	Dir     Type = "dir"
	Symlink Type = "symlink"
	FIFO    Type = "fifo"
	Socket  Type = "socket"
	Device  Type = "device"
)

// What happened to a path.
const (
	Added    = "added"
	Modified = "modified"
	Deleted  = "deleted"
)

// Manifest says what a mission changed.
type Manifest struct {
	V          int    `json:"v"`
	MissionID  string `json:"mission_id"`
	CellID     string `json:"cell_id"`
	Generation uint64 `json:"generation"`
	// Mode and Source are the agent block's workspace.
	Mode        string    `json:"mode"`
	Source      string    `json:"source,omitempty"`
	CollectedAt time.Time `json:"collected_at"`
	// Complete: every change is listed and its content kept. Notes say what is
	// missing.
	Complete bool     `json:"complete"`
	Notes    []string `json:"notes"`
	Added    int      `json:"added"`
	Modified int      `json:"modified"`
	Deleted  int      `json:"deleted"`
	// Dropped counts what is listed and not kept, Unlisted what is neither.
	Dropped  int   `json:"dropped"`
	Unlisted int   `json:"unlisted"`
	Bytes    int64 `json:"bytes"` // of the contents that are kept
	// Files are sorted as a walk through the workspace meets them; those that
	// were deleted come last.
	Files []Change `json:"files"`
}

// Change is one path that a mission changed.
type Change struct {
	Path string `json:"path"` // relative, with slashes
	// RawPath is the path where it is not valid UTF-8.
	RawPath []byte `json:"raw_path,omitempty"`
	Change  string `json:"change"` // added | modified | deleted
	Type    Type   `json:"type"`
	Size    int64  `json:"size"`
	Mode    string `json:"mode"` // permission bits, octal
	SHA256  string `json:"sha256,omitempty"`
	Link    string `json:"link,omitempty"` // target of a symlink
	// Kept: it is in the tar. Note says why not, or what was left out of it.
	Kept bool   `json:"kept"`
	Note string `json:"note,omitempty"`
}

// Limits bound the result of one mission. Zero fields take the default.
type Limits struct {
	Bytes int64         // of contents; 1 GiB
	Files int           // listed changes; 50,000
	Depth int           // of directories; 200
	Time  time.Duration // 10 minutes
}

func (l Limits) or() Limits {
	if l.Bytes == 0 {
		l.Bytes = 1 << 30
	}
	if l.Files == 0 {
		l.Files = 50_000
	}
	if l.Depth == 0 {
		l.Depth = 200
	}
	if l.Time == 0 {
		l.Time = 10 * time.Minute
	}
	return l
}

// Words describes a change for people.
func (c Change) Words() string {
	switch {
	case c.Change == Deleted:
		return Deleted
	case c.Type == Symlink:
		return fmt.Sprintf("%s, symlink", c.Change)
	case !c.Kept:
		return fmt.Sprintf("%s, not kept: %s", c.Change, c.Note)
	default:
		return fmt.Sprintf("%s, %d bytes", c.Change, c.Size)
	}
}
