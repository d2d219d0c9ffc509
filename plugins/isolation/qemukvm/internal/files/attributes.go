package files

import "golang.org/x/sys/unix"

func (s *Server) getattr(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return asErrno(err)
	}
	a.attrOut(&st)
	return 0
}

// Bits of a setattr request.
const (
	setMode     = 1 << 0
	setUID      = 1 << 1
	setGID      = 1 << 2
	setSize     = 1 << 3
	setAtime    = 1 << 4
	setMtime    = 1 << 5
	setFH       = 1 << 6
	setAtimeNow = 1 << 7
	setMtimeNow = 1 << 8
)

func (s *Server) setattr(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return asErrno(err)
	}
	valid := r.u32(0)
	if valid&setMode != 0 {
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.EOPNOTSUPP
		}
		if err := unix.Fchmodat(unix.AT_FDCWD, self(n.fd), r.u32(68)&permissions, 0); err != nil {
			return asErrno(err)
		}
	}
	if valid&(setUID|setGID) != 0 {
		uid, gid := -1, -1
		if valid&setUID != 0 && r.u32(76) != st.Uid {
			uid = int(r.u32(76))
		}
		if valid&setGID != 0 && r.u32(80) != st.Gid {
			gid = int(r.u32(80))
		}
		if uid >= 0 || gid >= 0 {
			if err := unix.Fchownat(n.fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
				return asErrno(err)
			}
		}
	}
	if valid&setSize != 0 {
		if errno := s.truncate(r, n, &st); errno != 0 {
			return errno
		}
	}
	if valid&(setAtime|setMtime|setAtimeNow|setMtimeNow) != 0 {
		times := []unix.Timespec{
			timeOf(valid, setAtime, setAtimeNow, r.u64(32), r.u32(56)),
			timeOf(valid, setMtime, setMtimeNow, r.u64(40), r.u32(60)),
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, self(n.fd), times, 0); err != nil {
			return asErrno(err)
		}
	}
	return s.getattr(r, a)
}

func timeOf(valid uint32, set, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	case valid&set != 0:
		return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
	}
	return unix.Timespec{Nsec: unix.UTIME_OMIT}
}

func (s *Server) truncate(r *request, n *node, st *unix.Stat_t) unix.Errno {
	size := r.u64(16)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EINVAL
	}
	grow := max(int64(size)-st.Size, 0)
	if int64(size) < 0 || !s.quota.room(uint64(grow)) {
		return unix.ENOSPC
	}
	var err error
	if h := s.table.handles[r.u64(8)]; r.u32(0)&setFH != 0 && h != nil && !h.dir {
		err = unix.Ftruncate(h.fd, int64(size))
	} else {
		err = unix.Truncate(self(n.fd), int64(size))
	}
	if err != nil {
		return asErrno(err)
	}
	s.quota.use(uint64(grow))
	s.quota.free(uint64(max(st.Size-int64(size), 0)))
	return 0
}

func (s *Server) statfs(r *request, a *answer) unix.Errno {
	n, errno := s.table.node(r.node)
	if errno != 0 {
		return errno
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(n.fd, &st); err != nil {
		return asErrno(err)
	}
	blocks, free, avail := st.Blocks, st.Bfree, st.Bavail
	if q := s.quota; q.limit > 0 && st.Bsize > 0 {
		size := uint64(st.Bsize)
		left := (q.limit - min(q.used, q.limit)) / size
		blocks, free, avail = min(blocks, q.limit/size), min(free, left), min(avail, left)
	}
	a.u64(blocks, free, avail, st.Files, st.Ffree)
	a.u32(uint32(st.Bsize), uint32(st.Namelen), uint32(st.Frsize), 0, 0, 0, 0, 0, 0, 0)
	return 0
}
