package store

import (
	"errors"
	"fmt"
	"os"
)

// ErrStandby: a store cannot be opened beside the process that has it.
var ErrStandby = errors.New("the store cannot be opened beside another process")

// Standby opens a store that another process still has, up to what can be done
// without touching it: nothing may be read or committed before Take. It is
// ErrStandby where the schema is an older one, which only an Open migrates, and
// ErrSchema where it is a newer one.
func Standby(opts Options) (*Store, error) {
	s, err := newStore(opts)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.path()); err != nil || info.Size() == 0 {
		return nil, fmt.Errorf("%w: there is none", ErrStandby)
	}
	useFdatasync()
	c, err := openConn(s.path(), writerCache)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStandby, err)
	}
	if err = s.sameSchema(c); err == nil {
		err = s.connect(c)
	}
	if err == nil {
		err = s.readers.Ping() // what its first connection costs is paid now
	}
	if err != nil {
		if !errors.Is(err, ErrSchema) {
			err = fmt.Errorf("%w: %w", ErrStandby, err)
		}
		return nil, errors.Join(err, c.close())
	}
	s.gone = true
	return s, nil
}

// Take makes a standby store this process's own, once the other has let it go.
func (s *Store) Take(heads HeadSink) (err error) {
	if s.lock, err = lockDir(s.opts.Dir); err != nil {
		return err
	}
	if err := s.space.reserve(); err != nil {
		s.log.Warn("the ballast file could not be made: there is no space kept for stop and revocation", "error", err)
	}
	s.opts.Heads = heads
	if err = s.sameSchema(s.w.c); err == nil {
		err = quickCheck(s.w.c)
	}
	if err == nil {
		err = s.w.load()
	}
	if err != nil {
		return fmt.Errorf("take over the store %s: %w", s.path(), err)
	}
	s.gone = false
	go s.w.run()
	return nil
}

// sameSchema says why the file's schema is not this version's.
func (s *Store) sameSchema(c *conn) error {
	v, err := c.ints("PRAGMA user_version")
	if err != nil {
		return err
	}
	switch want := int64(len(s.opts.migrations)); {
	case v[0] > want:
		return fmt.Errorf("%w: the file has version %d, this program knows up to %d", ErrSchema, v[0], want)
	case v[0] < want:
		return fmt.Errorf("%w: its schema has version %d and is to be migrated to %d", ErrStandby, v[0], want)
	}
	return nil
}
