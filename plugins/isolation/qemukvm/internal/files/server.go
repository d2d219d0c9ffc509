package files

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options says how a directory is served.
type Options struct {
	// ReadOnly refuses every change, whatever the guest has mounted.
	ReadOnly bool `json:"read_only"`
	// Quota is how many bytes the directory may hold; 0 = no limit. A file
	// counts as one block at least.
	Quota uint64 `json:"quota"`
}

// Server serves one directory to one guest.
type Server struct {
	opts Options

	mu    sync.Mutex // one request at a time, and Save between two of them
	table *table
	quota *quota
}

// New serves a directory that was opened with O_PATH or to be read; it keeps
// the descriptor. Its own files must not be subject to a umask.
func New(root int, opts Options) (*Server, error) {
	t, err := newTable(root)
	if err != nil {
		return nil, err
	}
	return &Server{opts: opts, table: t, quota: newQuota(root, opts.Quota)}, nil
}

// Close lets go of every file.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.closeAll()
}

const (
	hello     = "ALVOL\x00\x00\x01" // then eight random bytes; the guest repeats both
	helloSize = 16
	helloTime = 30 * time.Second
)

// Serve answers a guest until the stream ends. Another Serve may follow, for
// the next connection to the same guest; its kernel does not notice.
func (s *Server) Serve(rw io.ReadWriter) error {
	var mine [helloSize]byte
	copy(mine[:], hello)
	_, _ = rand.Read(mine[len(hello):]) // never fails
	if _, err := rw.Write(mine[:]); err != nil {
		return err
	}
	br := bufio.NewReaderSize(rw, maxRequest)
	// A hello can be lost in what an earlier connection has left half; then the
	// caller begins anew.
	wait, timed := rw.(interface{ SetReadDeadline(time.Time) error })
	if timed {
		_ = wait.SetReadDeadline(time.Now().Add(helloTime))
	}
	if err := discardTo(br, mine[:]); err != nil {
		return err
	}
	if timed {
		_ = wait.SetReadDeadline(time.Time{})
	}
	for buf := make([]byte, maxRequest); ; {
		if _, err := io.ReadFull(br, buf[:headerIn]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(buf)
		if n < headerIn || n > maxRequest {
			return fmt.Errorf("a request of %d bytes", n)
		}
		if _, err := io.ReadFull(br, buf[headerIn:n]); err != nil {
			return err
		}
		out := s.serve(&request{
			op: binary.LittleEndian.Uint32(buf[4:]), unique: binary.LittleEndian.Uint64(buf[8:]),
			node: binary.LittleEndian.Uint64(buf[16:]), body: buf[headerIn:n],
		})
		if out == nil {
			continue
		}
		if _, err := rw.Write(out); err != nil {
			return err
		}
	}
}

// discardTo throws away what an earlier connection has left in the stream.
func discardTo(br *bufio.Reader, mark []byte) error {
	for {
		b, err := br.Peek(len(mark))
		if err != nil {
			return err
		}
		if bytes.Equal(b, mark) {
			_, err := br.Discard(len(mark))
			return err
		}
		_, _ = br.Discard(1)
	}
}

// serve carries one request out; nil = it has no answer.
func (s *Server) serve(r *request) []byte {
	a := &answer{b: make([]byte, headerOut, 256)}
	s.mu.Lock()
	errno := s.do(r, a)
	s.mu.Unlock()
	switch r.op {
	case opForget, opBatchForget, opInterrupt:
		return nil
	}
	if errno != 0 {
		a.b = a.b[:headerOut]
	}
	binary.LittleEndian.PutUint32(a.b, uint32(len(a.b)))
	code := -int32(errno)
	binary.LittleEndian.PutUint32(a.b[4:], uint32(code))
	binary.LittleEndian.PutUint64(a.b[8:], r.unique)
	return a.b
}

// changes are the operations that a read-only directory refuses.
var changes = map[uint32]bool{
	opSetattr: true, opSymlink: true, opMknod: true, opMkdir: true, opUnlink: true, opRmdir: true, opRename: true,
	opRename2: true, opLink: true, opWrite: true, opCreate: true, opFallocate: true,
}

type operation func(*Server, *request, *answer) unix.Errno

var operations = map[uint32]operation{
	opInit: (*Server).init, opLookup: (*Server).lookup, opGetattr: (*Server).getattr, opSetattr: (*Server).setattr,
	opReadlink: (*Server).readlink, opSymlink: (*Server).symlink, opMknod: (*Server).mknod, opMkdir: (*Server).mkdir,
	opUnlink: (*Server).unlink, opRmdir: (*Server).unlink, opRename: (*Server).rename, opRename2: (*Server).rename,
	opLink: (*Server).link, opOpen: (*Server).open, opRead: (*Server).read, opWrite: (*Server).write,
	opStatfs: (*Server).statfs, opRelease: (*Server).release, opReleasedir: (*Server).release,
	opFsync: (*Server).fsync, opFsyncdir: (*Server).fsync, opFlush: (*Server).nothing, opDestroy: (*Server).nothing,
	opOpendir: (*Server).opendir, opReaddir: (*Server).readdir, opCreate: (*Server).create,
	opForget: (*Server).forget, opBatchForget: (*Server).batchForget, opInterrupt: (*Server).nothing,
	opFallocate: (*Server).fallocate, opLseek: (*Server).lseek,
}

func (s *Server) do(r *request, a *answer) unix.Errno {
	op := operations[r.op]
	switch {
	case op == nil:
		return unix.ENOSYS
	case s.opts.ReadOnly && changes[r.op]:
		return unix.EROFS
	}
	return op(s, r, a)
}

func (s *Server) nothing(*request, *answer) unix.Errno { return 0 }

// init agrees on the protocol.
func (s *Server) init(r *request, a *answer) unix.Errno {
	const major, minor = 7, 31
	const asyncRead, atomicTrunc, bigWrites, parallelDirops, maxPages = 1 << 0, 1 << 3, 1 << 5, 1 << 18, 1 << 22
	if r.u32(0) != major || r.u32(4) < minor {
		return unix.EPROTO
	}
	a.u32(major, minor, r.u32(8), r.u32(12)&(asyncRead|atomicTrunc|bigWrites|parallelDirops|maxPages))
	a.u16(16, 12) // requests at once
	a.u32(maxWrite, 1)
	a.u16(maxWrite/4096, 0)
	a.u32(0, 0, 0, 0, 0, 0, 0, 0)
	return 0
}

func (s *Server) forget(r *request, _ *answer) unix.Errno {
	s.table.forget(r.node, r.u64(0))
	return 0
}

func (s *Server) batchForget(r *request, _ *answer) unix.Errno {
	for i := range int(min(r.u32(0), maxRequest/16)) {
		s.table.forget(r.u64(8+16*i), r.u64(16+16*i))
	}
	return 0
}

// IsEnd says whether Serve has ended because the guest's side went away.
func IsEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}
