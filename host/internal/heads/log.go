package heads

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

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
	// Hook is called at the named points of a crash test; nil: none.
	Hook func(Point)
}

// Point names a place where crash tests stop the process.
type Point string

// The points.
const (
	BeforeAppend  Point = "heads.before_append"
	BeforeSync    Point = "heads.before_sync"
	AfterSync     Point = "heads.after_sync"
	BeforeCompact Point = "heads.before_compact"
	AfterArchive  Point = "heads.after_archive"
	AfterCompact  Point = "heads.after_compact"
)

// Points lists every point.
func Points() []Point {
	return []Point{BeforeAppend, BeforeSync, AfterSync, BeforeCompact, AfterArchive, AfterCompact}
}

// Log appends signed heads to the file and answers what is trusted. Heads of
// ended tasks move to FILE.ended when the file is compacted, so that memory
// and start-up do not grow with the missions that are over.
type Log struct {
	opts Options

	mu       sync.Mutex
	pending  map[string]journal.NewHead
	urgent   bool
	writing  bool
	live     map[string]journal.NewHead // durable
	doubts   map[string]*Problem        // tasks whose line is not good
	problems []*Problem
	err      error // of the last write; nil again after a good one
	flushed  chan struct{}

	kick chan struct{}
	stop chan struct{}
	done chan struct{}

	file *file // of the goroutine
}

// Open reads the file and starts the goroutine that appends to it. Lines that
// are not good do not stop it: they are in Problems, and Doubt names them for
// their tasks. Close ends it.
func Open(opts Options) (*Log, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Interval == 0 {
		opts.Interval = time.Second
	}
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	if opts.Hook == nil {
		opts.Hook = func(Point) {}
	}
	if len(opts.Key.private) == 0 {
		return nil, errors.New("open heads: no signing key")
	}
	if err := os.MkdirAll(filepath.Dir(opts.File), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of heads: %w", err)
	}
	l := &Log{
		opts:    opts,
		pending: map[string]journal.NewHead{},
		live:    map[string]journal.NewHead{},
		doubts:  map[string]*Problem{},
		flushed: make(chan struct{}),
		kick:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	whole, size, err := scan(opts.File, opts.Key, nil, func(r Record) {
		for _, h := range r.Heads {
			if old, ok := l.live[h.TaskID]; !ok || old.Sequence <= h.Sequence {
				l.live[h.TaskID] = h
			}
		}
	}, l.doubt)
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	if l.file, err = openFile(opts, whole, size); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

func (l *Log) doubt(p *Problem) {
	l.problems = append(l.problems, p)
	for _, t := range p.Tasks {
		l.doubts[t] = p
	}
	l.opts.Log.Error("a line of the file of signed heads is not good", "file", p.File, "line", p.Line, "error", p.Err)
}

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
	}
	<-l.done
	return l.Err()
}
