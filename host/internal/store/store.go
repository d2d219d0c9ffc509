package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/airlock-host/airlock/host/internal/filelock"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// HeadSink takes the heads that commits make and knows which heads are
// trusted. *heads.Log is one.
type HeadSink interface {
	// Publish must not block: it is called between a commit and its answer.
	Publish(hs []journal.NewHead, urgent bool)
	// Trusted gives a task's last head outside the data directory.
	Trusted(task string) (journal.Head, bool)
	// Doubt says why that head cannot be relied on.
	Doubt(task string) error
}

// Options of a Store.
type Options struct {
	Dir   string // the data directory
	Log   hclog.Logger
	Heads HeadSink // nil: heads are not published, and VerifyTask has none to compare with
	// BlobOver is the size in bytes above which a payload goes to a file of its
	// own; 0: 64 KiB.
	BlobOver int
	// Ballast is how much space is kept for when there is none left; 0: 16 MiB,
	// negative: none.
	Ballast int64
	// Hook is for crash tests; nil: none.
	Hook Hook

	// For tests.
	migrations []migration
	cacheMax   int
}

// Store is the durable store. Its methods may be called by many goroutines.
type Store struct {
	opts    Options
	log     hclog.Logger
	lock    *filelock.Dir
	file    os.FileInfo // of the database that is open
	blobs   blobDir
	space   space
	readers *sql.DB
	stmts   sync.Map // query text -> *sql.Stmt of readers
	w       *writer
	fresh   bool

	follow follow
	outbox broadcast
	poison atomic.Pointer[error]

	undeliverable atomic.Int64 // items
	pending       pending
	closing       sync.Once
	closed        error
	gone          bool // let go of
	releasing     sync.Once
	released      error
}

const (
	fileName   = "missions.db"
	blobOver   = 64 << 10
	ballast    = 16 << 20
	readerMax  = 4
	readerIdle = 30 * time.Second
)

// Open opens or makes the store in the data directory (made with mode 0700,
// the files 0600). It takes the directory for this process (ErrLocked), makes
// a copy before it migrates an older schema, and refuses a newer one
// (ErrSchema) and a damaged file (ErrDamaged).
func Open(opts Options) (*Store, error) {
	s, err := newStore(opts)
	if err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(s.opts.Dir); err != nil {
		return nil, err
	}
	if err := s.damaged(s.open()); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", s.path(), err), s.release())
	}
	return s, nil
}

// newStore fills the options in; nothing is open yet.
func newStore(opts Options) (*Store, error) {
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	if opts.BlobOver == 0 {
		opts.BlobOver = blobOver
	}
	if opts.Ballast == 0 {
		opts.Ballast = ballast
	}
	if opts.cacheMax == 0 {
		opts.cacheMax = cacheMax
	}
	if opts.migrations == nil {
		opts.migrations = migrations()
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	opts.Dir = dir
	if err := privateDir(dir); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{
		opts:  opts,
		log:   opts.Log,
		blobs: blobDir{dir: filepath.Join(dir, "blobs"), held: &heldBlobs{}},
		space: space{dir: dir, size: opts.Ballast},
	}
	s.follow.tasks = map[string]chan struct{}{}
	s.pending.tasks = map[int64]span{}
	return s, nil
}

func (s *Store) path() string { return filepath.Join(s.opts.Dir, fileName) }

func (s *Store) open() error {
	useFdatasync()
	if err := s.space.reserve(); err != nil {
		s.log.Warn("the ballast file could not be made: there is no space kept for stop and revocation", "error", err)
	}
	fresh, err := createFile(s.path())
	if err != nil {
		return err
	}
	s.fresh = fresh
	c, err := openConn(s.path(), writerCache)
	if err != nil {
		return err
	}
	if c, err = migrate(s, c); err != nil {
		return err
	}
	if err := quickCheck(c); err != nil {
		return errors.Join(err, c.close())
	}
	if err := s.connect(c); err != nil {
		return errors.Join(err, c.close())
	}
	if err := s.w.load(); err != nil {
		return errors.Join(err, s.readers.Close(), c.close())
	}
	go s.w.run()
	return nil
}

// connect prepares the writer's statements over its connection, and the readers.
func (s *Store) connect(c *conn) (err error) {
	if s.w, err = newWriter(s, c); err != nil {
		return err
	}
	if s.file, err = os.Stat(s.path()); err != nil {
		return err
	}
	s.readers, err = sql.Open("sqlite", dsn(s.path(), readerCache)+"&_query_only=1")
	if err != nil {
		return err
	}
	s.readers.SetMaxOpenConns(readerMax)
	s.readers.SetMaxIdleConns(readerMax)
	s.readers.SetConnMaxIdleTime(readerIdle)
	return nil
}

// Fresh says that this Open made the store.
func (s *Store) Fresh() bool { return s.fresh }

// Commit makes a batch durable (fsynced) and visible, or changes nothing. It
// waits for the commit even if ctx ends meanwhile, once the writer has taken
// the batch: then the answer is the truth. Errors: ErrConflict, ErrInvalid,
// ErrFull, ErrPoisoned, ErrClosed, or ctx's. The batch must not be changed
// before Commit returns.
func (s *Store) Commit(ctx context.Context, b Batch) error {
	if err := s.refusal(reserved(b.Events)); err != nil {
		return err
	}
	r := batchRequest{b: &b}
	defer r.release(s)
	if err := r.prepare(s); err != nil {
		return err
	}
	return s.w.do(ctx, &r)
}

// Healthy is nil while commits are possible, else why not.
func (s *Store) Healthy() error {
	if err := s.refusal(false); err != nil {
		return err
	}
	if err := s.home(); err != nil {
		return s.poisonBy(err)
	}
	return nil
}

// refusal says why a commit would be refused right away.
func (s *Store) refusal(reserved bool) error {
	if err := s.poison.Load(); err != nil {
		return *err
	}
	if s.w.isClosed() {
		return ErrClosed
	}
	if !reserved && s.space.full.Load() {
		return ErrFull
	}
	return nil
}

// poisonBy refuses every commit from now on.
func (s *Store) poisonBy(cause error) error {
	err := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	if s.poison.CompareAndSwap(nil, &err) {
		s.log.Error("the store is poisoned: no commit is taken until the host is started again", "error", cause)
	}
	return *s.poison.Load()
}

// Close waits for the commits that the writer has taken, refuses the others
// and releases the data directory.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if !s.gone {
			s.w.close()
			s.follow.close()
			s.outbox.close()
		}
		s.closed = errors.Join(s.readers.Close(), s.w.c.close(), s.release())
	})
	return s.closed
}

// LetGo releases the data directory for another process, after the commits that
// the writer has taken; the others are refused. It leaves SQLite's log as it is
// and its connections open, so that nothing is copied while somebody waits. Close
// must follow, whenever it suits.
func (s *Store) LetGo() error {
	s.gone = true
	s.w.stop()
	s.follow.close()
	s.outbox.close()
	return s.release()
}

func (s *Store) release() error {
	s.releasing.Do(func() {
		if s.lock != nil {
			s.released = s.lock.Release()
		}
	})
	return s.released
}
