package heads

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/failpoint"
	"github.com/airlock-host/airlock/host/internal/filelock"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// Options of a Log.
type Options struct {
	File string // heads.jsonl; its directory is made with mode 0700
	Key  Key
	Log  hclog.Logger
	Now  func() time.Time // nil: time.Now
	// Interval is how long a head that is not urgent may wait; 0: 1 s.
	Interval time.Duration
	// Also is given every line that was written, and at the start the heads of
	// before, signed anew; it must not wait. nil: nobody.
	Also func(lines []byte)
	// Hook is called at the named points of a crash test; nil: none.
	// Its error is ignored.
	Hook failpoint.Hook
}

// Point names a place where crash tests stop the process, in the table of
// failpoints.
type Point = failpoint.Point

// The points of the file; the table says what has happened at each.
const (
	BeforeAppend  = failpoint.HeadsBeforeAppend
	BeforeSync    = failpoint.HeadsBeforeSync
	AfterSync     = failpoint.HeadsAfterSync
	BeforeCompact = failpoint.HeadsBeforeCompact
	AfterArchive  = failpoint.HeadsAfterArchive
	AfterCompact  = failpoint.HeadsAfterCompact
)

// Points lists every point of the file.
func Points() []Point { return failpoint.Of("heads") }

// Log appends signed heads to the file and answers what is trusted. Heads of
// ended tasks move to FILE.ended when the file is compacted, so that memory
// and start-up do not grow with the missions that are over.
type Log struct {
	opts Options
	lock *os.File

	mu       sync.Mutex
	pending  map[string]journal.NewHead
	urgent   bool
	writing  bool
	live     map[string]journal.NewHead // durable
	doubts   map[string]*Problem        // tasks whose line is not good
	problems []*Problem
	trouble  []string // see Trouble
	err      error    // of the last write; nil again after a good one
	flushed  chan struct{}

	kick chan struct{}
	stop chan struct{}
	done chan struct{}

	file    *file // of the goroutine
	fresh   bool  // there was no file
	emptied bool  // there was one, with nothing in it
}

// Open reads the file and starts the goroutine that appends to it. Lines that
// are not good do not stop it: they are in Problems, and Doubt names them for
// their tasks. Close ends it.
func Open(opts Options) (_ *Log, err error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Interval == 0 {
		opts.Interval = time.Second
	}
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	if len(opts.Key.private) == 0 {
		return nil, errors.New("open heads: no signing key")
	}
	if err := os.MkdirAll(filepath.Dir(opts.File), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of heads: %w", err)
	}
	lock, err := takeLock(opts.File + ".lock")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = filelock.Release(lock)
		}
	}()
	l := &Log{
		opts:    opts,
		lock:    lock,
		pending: map[string]journal.NewHead{},
		live:    map[string]journal.NewHead{},
		doubts:  map[string]*Problem{},
		flushed: make(chan struct{}),
		kick:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	if l.fresh, err = absent(opts.File, endedFile(opts.File)); err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	whole, size, err := scan(opts.File, opts.Key, nil, func(r record.Record) {
		for _, h := range r.Heads {
			if old, ok := l.live[h.TaskID]; !ok || old.Sequence <= h.Sequence {
				l.live[h.TaskID] = h
			}
		}
	}, l.doubt)
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	l.emptied = !l.fresh && size == 0
	l.otherKeys()
	if l.file, err = openFile(opts, whole, size); err != nil {
		return nil, err
	}
	if l.fresh {
		text, err := l.beginning()
		if err == nil {
			err = l.file.append(text)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("begin the file of heads: %w", err), l.file.close())
		}
	}
	if opts.Also != nil {
		text, err := l.lines(slices.Collect(maps.Values(l.live)))
		if err != nil {
			return nil, errors.Join(err, l.file.close())
		}
		opts.Also(text)
	}
	go l.run()
	return l, nil
}

func (l *Log) doubt(p *Problem) {
	l.problems = append(l.problems, p)
	for _, t := range p.Tasks {
		l.doubts[t] = p
	}
	var other *record.OtherKeyError
	if errors.As(p.Err, &other) {
		return // said once for all of them, by otherKeys
	}
	l.opts.Log.Error("a line of the file of signed heads is not good", "file", p.File, "line", p.Line, "error", p.Err)
}

// otherKeys says once, and loudly, that the host's key is not the one that the
// file was signed with.
func (l *Log) otherKeys() {
	lines, keys := 0, map[string]bool{}
	for _, p := range l.problems {
		if other := (*record.OtherKeyError)(nil); errors.As(p.Err, &other) {
			lines++
			keys[other.KeyID] = true
		}
	}
	if lines == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(keys))
	l.opts.Log.Error("the host key was replaced: the signed heads of before do not count", "file", l.opts.File,
		"lines", lines, "signed_by", strings.Join(names, ", "), "host_key", l.opts.Key.ID)
	l.trouble = append(l.trouble, fmt.Sprintf("the host key was replaced: %d lines of %s are signed by key %s, the host's is %s, so nothing proves the journals of their tasks; "+
		"put the old key back, or, if the replacement was meant, move the file away and keep it with the old public key", lines, l.opts.File, strings.Join(names, ", "), l.opts.Key.ID))
}

// absent says whether none of the files is there.
func absent(paths ...string) (bool, error) {
	for _, p := range paths {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// Fresh says whether there was no file of heads when the log was opened.
func (l *Log) Fresh() bool { return l.fresh }

// Emptied says whether the file was there when the log was opened and had nothing
// in it. A file begins with a record, so somebody has emptied it.
func (l *Log) Emptied() bool { return l.emptied }

// Live are the tasks that have a trusted head and have not ended, sorted.
func (l *Log) Live() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for task, h := range l.live {
		if !h.Ended {
			list = append(list, task)
		}
	}
	slices.Sort(list)
	return list
}

// Any says whether heads of any task were in the file when it was read, or were
// archived.
func (l *Log) Any() (bool, error) {
	l.mu.Lock()
	live := len(l.live)
	l.mu.Unlock()
	none, err := absent(endedFile(l.opts.File))
	return live > 0 || len(l.problems) > 0 || err == nil && !none, err
}

// Trouble is what an operator must know of the file as it was read, in words:
// what it means and what to do.
func (l *Log) Trouble() []string { return l.trouble }

// Publish takes the heads of one commit. It never blocks on the disk; with
// urgent they are signed at once, else within the interval.
func (l *Log) Publish(hs []journal.NewHead, urgent bool) {
	l.mu.Lock()
	first := len(l.pending) == 0
	for _, h := range hs {
		if old, ok := l.pending[h.TaskID]; ok {
			h.Ended = h.Ended || old.Ended
		}
		l.pending[h.TaskID] = h
	}
	wake := first || (urgent && !l.urgent)
	l.urgent = l.urgent || urgent
	l.mu.Unlock()
	if wake {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// Trusted gives the last signed, durable head of a task.
func (l *Log) Trusted(task string) (journal.Head, bool) {
	l.mu.Lock()
	h, ok := l.live[task]
	l.mu.Unlock()
	if ok {
		return h.Head, true
	}
	head, ok, problems, err := Find(endedFile(l.opts.File), l.opts.Key, task)
	if err != nil {
		problems = append(problems, &Problem{File: endedFile(l.opts.File), Err: err, Tasks: []string{task}})
	}
	if len(problems) > 0 {
		l.mu.Lock()
		if l.doubts[task] == nil {
			l.doubts[task] = problems[0]
		}
		l.mu.Unlock()
	}
	return head, ok
}

// Doubt says why a task's trusted head cannot be relied on; nil normally. Ask
// it after Trusted.
func (l *Log) Doubt(task string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.doubts[task]; p != nil {
		return p
	}
	return nil
}

// Problems are the lines that were found bad when the file was read. While
// there are any, the file is not compacted: they are evidence.
func (l *Log) Problems() []*Problem { return l.problems }

// Err says why the last heads could not be written; nil normally. They are
// kept and tried again.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Flush waits until everything published before is durable or failed.
func (l *Log) Flush(ctx context.Context) error {
	for {
		l.mu.Lock()
		done := l.flushed
		l.urgent = l.urgent || len(l.pending) > 0
		idle := len(l.pending) == 0 && !l.writing
		l.mu.Unlock()
		if idle {
			return l.Err()
		}
		select {
		case l.kick <- struct{}{}:
		default:
		}
		select {
		case <-done:
			if err := l.Err(); err != nil {
				return err
			}
		case <-l.done:
			return l.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close writes what is pending and ends the goroutine.
func (l *Log) Close() error {
	select {
	case <-l.stop:
	default:
		close(l.stop)
		<-l.done
		_ = filelock.Release(l.lock)
	}
	<-l.done
	return l.Err()
}
