package files

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// openFlags are what the guest's flags of an open may mean at the host. Where a
// file ends is the guest's kernel's business for O_APPEND.
const openFlags = unix.O_ACCMODE | unix.O_TRUNC | unix.O_SYNC | unix.O_DSYNC

// openNode opens a regular file or a directory, and nothing that would do
// something by being opened.
func (s *Server) openNode(n *node, flags int, kind uint32) (int, unix.Errno) {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return -1, asErrno(err)
	}
	if st.Mode&unix.S_IFMT != kind {
		return -1, unix.EINVAL
	}
	if s.opts.ReadOnly && (flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0) {
		return -1, unix.EROFS
	}
	fd, err := unix.Open(self(n.fd), flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil && flags&unix.O_TRUNC != 0 {
		s.quota.free(uint64(st.Size))
	}
	return fd, asErrno(err)
}

func (s *Server) open(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	flags := int(r.u32(0)) & openFlags
	fd, errno := s.openNode(n, flags, unix.S_IFREG)
	if errno != 0 {
		return errno
	}
	a.u64(s.table.open(&handle{fd: fd, node: n.id, flags: flags &^ unix.O_TRUNC}))
	a.u32(0, 0)
	return 0
}

func (s *Server) create(r *request, a *answer) unix.Errno {
	p, errno := s.at(r, 16)
	if errno != 0 {
		return errno
	}
	if !s.quota.room(blockSize) {
		return unix.ENOSPC
	}
	flags := int(r.u32(0)) & (openFlags | unix.O_EXCL)
	fd, err := unix.Openat(p.dir.fd, p.name, flags|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, r.u32(4)&permissions)
	if err != nil {
		return asErrno(err)
	}
	s.quota.use(blockSize)
	path, err := unix.Openat(p.dir.fd, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd)
		return asErrno(err)
	}
	id, st, errno := s.table.know(path)
	if errno == 0 && st.Mode&unix.S_IFMT != unix.S_IFREG {
		s.table.forget(id, 1)
		errno = unix.EINVAL
	}
	if errno != 0 {
		_ = unix.Close(fd)
		return errno
	}
	a.entry(id, &st)
	a.u64(s.table.open(&handle{fd: fd, node: id, flags: flags &^ (unix.O_TRUNC | unix.O_EXCL)}))
	a.u32(0, 0)
	return 0
}

func (s *Server) release(r *request, _ *answer) unix.Errno {
	s.table.release(r.u64(0))
	return 0
}

func (s *Server) read(r *request, a *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	size := int(min(r.u32(16), maxWrite))
	buf := append(a.b, make([]byte, size)...)
	n, err := unix.Pread(h.fd, buf[headerOut:], int64(r.u64(8)))
	if err != nil {
		return asErrno(err)
	}
	a.b = buf[:headerOut+n]
	return 0
}

func (s *Server) write(r *request, a *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	data := r.body[min(40, len(r.body)):]
	if n := int(r.u32(16)); n < len(data) {
		data = data[:n]
	}
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return asErrno(err)
	}
	at := int64(r.u64(8))
	if at < 0 {
		return unix.EINVAL
	}
	grow := uint64(max(at+int64(len(data))-st.Size, 0))
	if !s.quota.room(grow) {
		return unix.ENOSPC
	}
	n, err := unix.Pwrite(h.fd, data, at)
	if err != nil {
		return asErrno(err)
	}
	s.quota.use(grow)
	a.u32(uint32(n), 0)
	return 0
}

func (s *Server) fallocate(r *request, _ *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	mode, length := r.u32(24), r.u64(16)
	if mode&^uint32(unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
		return unix.EOPNOTSUPP
	}
	if mode&unix.FALLOC_FL_PUNCH_HOLE == 0 {
		if !s.quota.room(length) {
			return unix.ENOSPC
		}
		s.quota.use(length)
	}
	return asErrno(unix.Fallocate(h.fd, mode, int64(r.u64(8)), int64(length)))
}

func (s *Server) lseek(r *request, a *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	at, err := unix.Seek(h.fd, int64(r.u64(8)), int(r.u32(16)))
	if err == nil {
		a.u64(uint64(at))
	}
	return asErrno(err)
}

func (s *Server) fsync(r *request, _ *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	return asErrno(unix.Fsync(h.fd))
}

func (s *Server) opendir(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	fd, errno := s.openNode(n, unix.O_RDONLY, unix.S_IFDIR)
	if errno != 0 {
		return errno
	}
	a.u64(s.table.open(&handle{fd: fd, node: n.id, dir: true}))
	a.u32(0, 0)
	return 0
}

// readdir answers from a list that is read when the guest begins at the start,
// so that what it sees of one reading is of one moment.
func (s *Server) readdir(r *request, a *answer) unix.Errno {
	h, errno := s.table.handle(r.u64(0))
	if errno != 0 {
		return errno
	}
	offset := r.u64(8)
	if offset == 0 || h.list == nil {
		if errno := h.readList(); errno != 0 {
			return errno
		}
	}
	room := int(min(r.u32(16), maxWrite))
	for at := int(min(offset, uint64(len(h.list)))); at+19 <= len(h.list); {
		// struct linux_dirent64: ino, offset, length, type, name.
		e := h.list[at:]
		size := int(binary.LittleEndian.Uint16(e[16:]))
		if size < 20 || size > len(e) {
			return unix.EIO
		}
		name := e[19:size]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		padded := (24 + len(name) + 7) &^ 7
		if len(a.b)-headerOut+padded > room {
			break
		}
		at += size
		a.u64(binary.LittleEndian.Uint64(e), uint64(at))
		a.u32(uint32(len(name)), uint32(e[18]))
		a.b = append(a.b, name...)
		a.b = append(a.b, make([]byte, padded-24-len(name))...)
	}
	return 0
}

func (h *handle) readList() unix.Errno {
	if _, err := unix.Seek(h.fd, 0, unix.SEEK_SET); err != nil {
		return asErrno(err)
	}
	h.list = []byte{}
	for buf := make([]byte, 64<<10); ; {
		n, err := unix.Getdents(h.fd, buf)
		if err != nil {
			return asErrno(err)
		}
		if n == 0 {
			return 0
		}
		h.list = append(h.list, buf[:n]...)
	}
}
