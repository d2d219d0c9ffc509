package files

import (
	"golang.org/x/sys/unix"
)

// permissions are the mode bits that the guest may set. A program that runs
// with its owner's rights at the host is none of them.
const permissions = 0o1777

// find looks a name up and tells the guest.
func (s *Server) find(parent *node, name string, a *answer) unix.Errno {
	fd, err := unix.Openat(parent.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return asErrno(err)
	}
	id, st, errno := s.table.know(fd)
	if errno == 0 {
		a.entry(id, &st)
	}
	return errno
}

// place is a name in a directory.
type place struct {
	dir  *node
	name string
}

// at reads a place whose directory is the request's node.
func (s *Server) at(r *request, offset int) (place, unix.Errno) {
	names, errno := r.names(offset, 1)
	if errno != 0 {
		return place{}, errno
	}
	return s.placeIn(r.node, names[0])
}

func (s *Server) placeIn(dir uint64, name string) (p place, errno unix.Errno) {
	if errno = validName(name); errno != 0 {
		return p, errno
	}
	p.name = name
	p.dir, errno = s.table.node(dir)
	return p, errno
}

func (s *Server) lookup(r *request, a *answer) unix.Errno {
	p, errno := s.at(r, 0)
	if errno != 0 {
		return errno
	}
	return s.find(p.dir, p.name, a)
}

// made ends an operation that makes a name.
func (s *Server) made(p place, err error, a *answer) unix.Errno {
	if err != nil {
		return asErrno(err)
	}
	s.quota.use(blockSize)
	return s.find(p.dir, p.name, a)
}

func (s *Server) mknod(r *request, a *answer) unix.Errno {
	p, errno := s.at(r, 16)
	if errno != 0 {
		return errno
	}
	mode := r.u32(0)
	switch mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return unix.EPERM
	}
	if !s.quota.room(blockSize) {
		return unix.ENOSPC
	}
	return s.made(p, unix.Mknodat(p.dir.fd, p.name, mode&(unix.S_IFMT|permissions), 0), a)
}

func (s *Server) mkdir(r *request, a *answer) unix.Errno {
	p, errno := s.at(r, 8)
	if errno != 0 {
		return errno
	}
	if !s.quota.room(blockSize) {
		return unix.ENOSPC
	}
	return s.made(p, unix.Mkdirat(p.dir.fd, p.name, r.u32(0)&permissions), a)
}

func (s *Server) symlink(r *request, a *answer) unix.Errno {
	names, errno := r.names(0, 2)
	if errno != 0 {
		return errno
	}
	p, errno := s.placeIn(r.node, names[0])
	if errno != 0 {
		return errno
	}
	if !s.quota.room(blockSize) {
		return unix.ENOSPC
	}
	return s.made(p, unix.Symlinkat(names[1], p.dir.fd, p.name), a)
}

func (s *Server) link(r *request, a *answer) unix.Errno {
	p, errno := s.at(r, 8)
	if errno != 0 {
		return errno
	}
	old, errno := s.table.node(r.u64(0))
	if errno != 0 {
		return errno
	}
	if err := unix.Linkat(unix.AT_FDCWD, self(old.fd), p.dir.fd, p.name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return asErrno(err)
	}
	return s.find(p.dir, p.name, a)
}

func (s *Server) unlink(r *request, _ *answer) unix.Errno {
	p, errno := s.at(r, 0)
	if errno != 0 {
		return errno
	}
	flags := 0
	if r.op == opRmdir {
		flags = unix.AT_REMOVEDIR
	}
	var st unix.Stat_t
	known := unix.Fstatat(p.dir.fd, p.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if err := unix.Unlinkat(p.dir.fd, p.name, flags); err != nil {
		return asErrno(err)
	}
	if known && (st.Nlink <= 1 || flags != 0) {
		s.quota.free(sizeOf(&st))
	}
	return 0
}

func (s *Server) rename(r *request, _ *answer) unix.Errno {
	at, flags := 8, uint(0)
	if r.op == opRename2 {
		at, flags = 16, uint(r.u32(8))
	}
	names, errno := r.names(at, 2)
	if errno != 0 {
		return errno
	}
	from, errno := s.placeIn(r.node, names[0])
	if errno != 0 {
		return errno
	}
	to, errno := s.placeIn(r.u64(0), names[1])
	if errno != 0 {
		return errno
	}
	var st unix.Stat_t
	replaced := flags == 0 && unix.Fstatat(to.dir.fd, to.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if err := unix.Renameat2(from.dir.fd, from.name, to.dir.fd, to.name, flags&(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE)); err != nil {
		return asErrno(err)
	}
	if replaced && st.Nlink <= 1 {
		s.quota.free(sizeOf(&st))
	}
	return 0
}

func (s *Server) readlink(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	buf := make([]byte, unix.PathMax)
	size, err := unix.Readlinkat(n.fd, "", buf)
	if err == nil {
		a.b = append(a.b, buf[:size]...)
	}
	return asErrno(err)
}
