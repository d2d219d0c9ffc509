package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// saved is a server's table on disk: what a guest's kernel that is saved
// together with it still knows.
type saved struct {
	V       int                    `json:"v"`
	Next    uint64                 `json:"next"`
	Nodes   map[uint64]savedNode   `json:"nodes"`
	Handles map[uint64]savedHandle `json:"handles"`
}

type savedNode struct {
	Path    string `json:"path"` // below the directory
	Lookups uint64 `json:"lookups"`
}

type savedHandle struct {
	Node  uint64 `json:"node"`
	Flags int    `json:"flags"`
	Dir   bool   `json:"dir"`
}

// Save writes what the guest knows. A file that was removed while it was open
// cannot be found again: the guest gets ESTALE or EBADF for it later.
func (s *Server) Save(w io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := saved{V: 1, Next: s.table.next, Nodes: map[uint64]savedNode{}, Handles: map[uint64]savedHandle{}}
	root, err := os.Readlink(self(s.table.nodes[rootID].fd))
	if err != nil {
		return fmt.Errorf("save the files of a guest: %w", err)
	}
	for id, n := range s.table.nodes {
		path, err := os.Readlink(self(n.fd))
		if err != nil || id == rootID {
			continue
		}
		if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/"); ok {
			out.Nodes[id] = savedNode{rel, n.lookups}
		}
	}
	for id, h := range s.table.handles {
		out.Handles[id] = savedHandle{h.node, h.flags, h.dir}
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("save the files of a guest: %w", err)
	}
	return nil
}

// Load takes up what Save has written, before the first Serve. What cannot be
// found again is left out.
func (s *Server) Load(r io.Reader) error {
	var in saved
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return fmt.Errorf("load the files of a guest: %w", err)
	}
	if in.V != 1 {
		return errors.New("load the files of a guest: unknown version")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table
	root := t.nodes[rootID].fd
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	for id, n := range in.Nodes {
		fd, err := unix.Openat2(root, n.Path, &how)
		if err != nil || id == rootID {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			_ = unix.Close(fd)
			continue
		}
		t.add(&node{id: id, fd: fd, key: fileKey{st.Dev, st.Ino}, lookups: n.Lookups})
	}
	for id, h := range in.Handles {
		n := t.nodes[h.Node]
		kind, flags := uint32(unix.S_IFREG), h.Flags&openFlags&^unix.O_TRUNC
		if h.Dir {
			kind, flags = unix.S_IFDIR, unix.O_RDONLY
		}
		if n == nil {
			continue
		}
		if fd, errno := s.openNode(n, flags, kind); errno == 0 {
			t.handles[id] = &handle{fd: fd, node: h.Node, flags: flags, dir: h.Dir}
		}
	}
	t.next = max(t.next, in.Next)
	return nil
}
