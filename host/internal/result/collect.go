package result

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Job is one collection.
type Job struct {
	MissionID  string
	CellID     string
	Generation uint64
	Mode       string
	Source     string
	Root       string // the workspace
	Baseline   string // what it began as (file of NewBaseline); empty: as nothing
	// Owners are the uids of the mission's processes; empty: anybody's.
	Owners []uint32
	// Notes are what must be said of this result, such as that processes may
	// have run meanwhile.
	Notes []string
}

// errTime ends a walk that takes too long.
var errTime = errors.New("time is up")

// collection is a job that is being done.
type collection struct {
	job    Job
	limits Limits
	began  time.Time
	now    func() time.Time
	before map[string]Entry
	seen   map[string]struct{} // of before
	missed []string            // paths below which nothing is known
	m      *Manifest
	pack   *pack
}

// Collect compares a workspace with what it began as and stores the difference.
// Doing it again for the same cell changes nothing and answers the same. An
// error leaves no result behind and may pass by itself (a full disk).
func (s *Store) Collect(ctx context.Context, job Job) (*Manifest, error) {
	if old, err := s.Open(job.MissionID); err == nil {
		m, err := old.Manifest()
		if err == nil && (m.CellID == job.CellID || m.Generation > job.Generation) {
			return m, nil
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(s.Dir, tempPrefix)
	if err != nil {
		return nil, err
	}
	m, err := s.collect(ctx, job, temp)
	if err == nil {
		err = s.put(temp, job.MissionID)
	}
	if err != nil {
		_ = os.RemoveAll(temp)
		return nil, fmt.Errorf("collect the files of mission %q: %w", job.MissionID, err)
	}
	return m, nil
}

func (s *Store) collect(ctx context.Context, job Job, temp string) (*Manifest, error) {
	now := s.Now
	if now == nil {
		now = time.Now
	}
	c := &collection{job: job, limits: s.Limits.or(), began: now(), now: now, seen: map[string]struct{}{},
		m: &Manifest{V: 1, MissionID: job.MissionID, CellID: job.CellID, Generation: job.Generation, Mode: job.Mode, Source: job.Source,
			CollectedAt: now().UTC(), Complete: len(job.Notes) == 0, Notes: append([]string{}, job.Notes...), Files: []Change{}}}
	if err := c.leaveRoom(temp); err != nil {
		return nil, err
	}
	if job.Baseline != "" {
		var err error
		c.before, err = readBaseline(job.Baseline)
		if errors.Is(err, fs.ErrNotExist) {
			c.short("what the workspace began as is not known: everything in it is listed as added")
		} else if err != nil {
			return nil, err
		}
	}
	var err error
	if c.pack, err = newPack(filepath.Join(temp, tarName)); err != nil {
		return nil, err
	}
	defer c.pack.abandon()
	walk := Walk{Visit: c.visit, Missed: c.miss, Depth: c.limits.Depth}
	switch err := walk.Tree(ctx, job.Root); {
	case errors.Is(err, errTime):
		c.miss("", fmt.Errorf("looking through the workspace took longer than %s", c.limits.Time))
	case err != nil:
		return nil, err
	}
	c.deletions()
	if c.m.Unlisted > 0 {
		c.short(fmt.Sprintf("%d more changes are not listed: a result lists %d at most", c.m.Unlisted, c.limits.Files))
	}
	if err := c.pack.close(); err != nil {
		return nil, err
	}
	return c.m, writeManifest(filepath.Join(temp, manifestName), c.m)
}

// leaveRoom keeps a result from filling the disk that the journal is on.
func (c *collection) leaveRoom(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if free := int64(fs.Bavail) * fs.Bsize / 2; free < c.limits.Bytes { //nolint:gosec // sizes of disks
		c.limits.Bytes = max(free, 0)
	}
	return nil
}

// short notes that the result lacks something.
func (c *collection) short(note string) {
	c.m.Complete = false
	if len(c.m.Notes) < 100 {
		c.m.Notes = append(c.m.Notes, note)
	}
}

func (c *collection) miss(path string, why error) {
	c.missed = append(c.missed, path)
	c.short(fmt.Sprintf("%q and what is below it was not looked at: %v", "/"+path, why))
}

// visit compares one path and keeps it if it is new or changed.
func (c *collection) visit(d *Directory, name string, e Entry) error {
	if c.now().Sub(c.began) > c.limits.Time {
		return errTime
	}
	old, known := c.before[e.Path]
	if known {
		c.seen[e.Path] = struct{}{}
		if old.Same(e) {
			return nil
		}
	}
	ch := Change{Change: Added, Type: e.Type, Size: e.Size, Mode: fmt.Sprintf("%04o", e.Mode&0o777), Link: printableUTF8(e.Link)}
	if known {
		ch.Change = Modified
		c.m.Modified++
	} else {
		c.m.Added++
	}
	if len(c.m.Files) >= c.limits.Files {
		c.m.Unlisted++
		return nil
	}
	if e.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && e.Type == File {
		ch.Note = "setuid and setgid bits are dropped"
	}
	if err := c.keep(d, name, e, known, &ch); err != nil {
		return err
	}
	if !ch.Kept {
		c.m.Dropped++
	}
	c.list(e.Path, ch)
	return nil
}

// keep puts a path into the tar, or says why not.
func (c *collection) keep(d *Directory, name string, e Entry, known bool, ch *Change) error {
	switch {
	case e.Type == Dir || e.Type == Symlink:
		ch.Kept = true
		return c.pack.entry(e)
	case e.Type != File:
		ch.Note = "a " + string(e.Type) + " is not kept"
		return nil
	case e.Links > 1 && !known && len(c.job.Owners) > 0 && !slices.Contains(c.job.Owners, e.UID):
		ch.Note = "a hard link to a file of somebody else is not kept"
		return nil
	case e.Size > c.limits.Bytes-c.m.Bytes:
		ch.Note = fmt.Sprintf("it would take the result over its limit of %d bytes", c.limits.Bytes)
		c.short(fmt.Sprintf("%q is not kept: %s", e.Path, ch.Note))
		return nil
	}
	f, err := d.Open(name, e)
	if err != nil {
		ch.Note = err.Error()
		c.short(fmt.Sprintf("%q is not kept: %v", e.Path, err))
		return nil
	}
	defer f.Close()
	sum, changed, err := c.pack.file(e, f)
	if err != nil {
		return err
	}
	if changed {
		ch.Note = "it changed while it was read"
		c.short(fmt.Sprintf("%q changed while it was read", e.Path))
	}
	ch.SHA256, ch.Kept = sum, true
	c.m.Bytes += e.Size
	return nil
}

func (c *collection) list(path string, ch Change) {
	ch.Path = printableUTF8(path)
	if ch.Path != path {
		ch.RawPath = []byte(path)
	}
	c.m.Files = append(c.m.Files, ch)
}

// deletions lists what the workspace began with and is not there any more.
func (c *collection) deletions() {
	var gone []string
	for path := range c.before {
		if _, there := c.seen[path]; !there && !c.unknown(path) {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	c.m.Deleted = len(gone)
	for i, path := range gone {
		if len(c.m.Files) >= c.limits.Files {
			c.m.Unlisted += len(gone) - i
			return
		}
		old := c.before[path]
		c.list(path, Change{Change: Deleted, Type: old.Type, Size: old.Size, Mode: fmt.Sprintf("%04o", old.Mode&0o777), Link: printableUTF8(old.Link)})
	}
}

// unknown says that a path may be there without having been seen.
func (c *collection) unknown(path string) bool {
	return slices.ContainsFunc(c.missed, func(m string) bool {
		return m == "" || path == m || strings.HasPrefix(path, m+"/")
	})
}

func printableUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func writeManifest(path string, m *Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
