package files

import (
	"time"

	"golang.org/x/sys/unix"
)

// blockSize is what a file counts at least.
const blockSize = 4096

// quota counts what a directory holds. It follows what the guest does, and
// counts anew before it refuses anything: the host may have removed files.
type quota struct {
	root    int
	limit   uint64 // 0 = none
	used    uint64
	counted time.Time
}

// recount is the least time between two counts.
const recount = time.Second

func newQuota(root int, limit uint64) *quota {
	q := &quota{root: root, limit: limit}
	if limit > 0 {
		q.count()
	}
	return q
}

func sizeOf(st *unix.Stat_t) uint64 {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return blockSize
	}
	return blockSize + uint64(st.Size)
}

// room says whether so many bytes more fit.
func (q *quota) room(n uint64) bool {
	if q.limit == 0 || n == 0 || q.used+n >= q.used && q.used+n <= q.limit {
		return true
	}
	if time.Since(q.counted) > recount {
		q.count()
	}
	return q.used+n >= q.used && q.used+n <= q.limit
}

func (q *quota) use(n uint64) {
	if q.limit > 0 {
		q.used += n
	}
}

func (q *quota) free(n uint64) {
	if q.limit > 0 {
		q.used -= min(n, q.used)
	}
}

func (q *quota) count() {
	q.used = 0
	if fd, err := unix.Open(self(q.root), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		q.used = countIn(&handle{fd: fd}, 0)
		_ = unix.Close(fd)
	}
	q.counted = time.Now()
}

// maxDepth bounds the walk.
const maxDepth = 256

func countIn(h *handle, depth int) (total uint64) {
	if depth > maxDepth || h.readList() != 0 {
		return 0
	}
	for _, name := range h.names() {
		var st unix.Stat_t
		if unix.Fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		total += sizeOf(&st)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if fd, err := unix.Openat(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			total += countIn(&handle{fd: fd}, depth+1)
			_ = unix.Close(fd)
		}
	}
	return total
}

// names are those of a list, without the directory itself and its parent.
func (h *handle) names() (out []string) {
	_, _, out = unix.ParseDirent(h.list, -1, nil)
	return out
}
