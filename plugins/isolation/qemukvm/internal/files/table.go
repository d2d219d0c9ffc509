package files

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// node is a file that the guest's kernel knows by a number.
type node struct {
	id      uint64
	fd      int // O_PATH
	key     fileKey
	lookups uint64 // how often the guest was told of it, and has not forgotten
}

type fileKey struct{ dev, ino uint64 }

// handle is a file that the guest has open.
type handle struct {
	fd    int
	node  uint64
	flags int
	list  []byte // of a directory, as getdents has it; nil = not read yet
	dir   bool
}

const rootID = 1

// table holds nodes and handles. It is used by one goroutine.
type table struct {
	nodes   map[uint64]*node
	byKey   map[fileKey]*node
	handles map[uint64]*handle
	next    uint64 // of nodes and handles
}

func newTable(root int) (*table, error) {
	t := &table{nodes: map[uint64]*node{}, byKey: map[fileKey]*node{}, handles: map[uint64]*handle{}, next: rootID}
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return nil, err
	}
	t.add(&node{id: rootID, fd: root, key: fileKey{st.Dev, st.Ino}, lookups: 1})
	return t, nil
}

func (t *table) add(n *node) {
	t.nodes[n.id], t.byKey[n.key] = n, n
	t.next = max(t.next, n.id)
}

func (t *table) node(id uint64) (*node, unix.Errno) {
	if n := t.nodes[id]; n != nil {
		return n, 0
	}
	return nil, unix.ESTALE
}

func (t *table) handle(id uint64) (*handle, unix.Errno) {
	if h := t.handles[id]; h != nil {
		return h, 0
	}
	return nil, unix.EBADF
}

// know gives the number of a file that was just opened with O_PATH, and takes
// the descriptor.
func (t *table) know(fd int) (id uint64, st unix.Stat_t, errno unix.Errno) {
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return 0, st, asErrno(err)
	}
	key := fileKey{st.Dev, st.Ino}
	if n := t.byKey[key]; n != nil {
		_ = unix.Close(fd)
		n.lookups++
		return n.id, st, 0
	}
	n := &node{id: t.next + 1, fd: fd, key: key, lookups: 1}
	t.add(n)
	return n.id, st, 0
}

func (t *table) forget(id, times uint64) {
	n := t.nodes[id]
	if n == nil || id == rootID {
		return
	}
	if n.lookups > times {
		n.lookups -= times
		return
	}
	delete(t.nodes, id)
	if t.byKey[n.key] == n {
		delete(t.byKey, n.key)
	}
	_ = unix.Close(n.fd)
}

func (t *table) open(h *handle) uint64 {
	t.next++
	t.handles[t.next] = h
	return t.next
}

func (t *table) release(id uint64) {
	if h := t.handles[id]; h != nil {
		delete(t.handles, id)
		_ = unix.Close(h.fd)
	}
}

// closeAll lets everything go.
func (t *table) closeAll() {
	for id := range t.handles {
		t.release(id)
	}
	for _, n := range t.nodes {
		_ = unix.Close(n.fd)
	}
}

// self names an open file in a way that the kernel follows to that very file.
func self(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// asErrno is the number that the guest gets for an error of the kernel's.
func asErrno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(unix.Errno); ok { //nolint:errorlint // the calls return it bare
		return e
	}
	return unix.EIO
}

// validName refuses what is not one component of a path.
func validName(name string) unix.Errno {
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return unix.EINVAL
	case len(name) > unix.NAME_MAX:
		return unix.ENAMETOOLONG
	}
	return 0
}
