package files

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// guest asks a server directly, as a guest's kernel of any intent would.
type guest struct {
	t *testing.T
	s *Server
}

func newGuest(t *testing.T, dir string, o Options) *guest {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(fd, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &guest{t, s}
}

func (g *guest) ask(op uint32, node uint64, body []byte) ([]byte, unix.Errno) {
	out := g.s.serve(&request{op: op, unique: 7, node: node, body: body})
	if len(out) < headerOut {
		return nil, 0
	}
	return out[headerOut:], unix.Errno(-int32(binary.LittleEndian.Uint32(out[4:])))
}

func (g *guest) create(name string) (handle uint64, errno unix.Errno) {
	body := append(make([]byte, 16), append([]byte(name), 0)...)
	binary.LittleEndian.PutUint32(body, unix.O_RDWR)
	binary.LittleEndian.PutUint32(body[4:], 0o4755)
	out, errno := g.ask(opCreate, rootID, body)
	if errno != 0 {
		return 0, errno
	}
	return binary.LittleEndian.Uint64(out[128:]), 0
}

func (g *guest) write(handle uint64, data []byte) unix.Errno {
	body := make([]byte, 40)
	binary.LittleEndian.PutUint64(body, handle)
	binary.LittleEndian.PutUint32(body[16:], uint32(len(data)))
	_, errno := g.ask(opWrite, 0, append(body, data...))
	return errno
}

func TestNoNameLeadsOut(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "v")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, dir, Options{})
	for _, name := range []string{"..", ".", "", "../v", "/etc", "up/v"} {
		if _, errno := g.ask(opLookup, rootID, append([]byte(name), 0)); errno != unix.EINVAL {
			t.Errorf("lookup of %q: %v", name, errno)
		}
		if _, errno := g.create(name); errno != unix.EINVAL {
			t.Errorf("create of %q: %v", name, errno)
		}
	}
	out, errno := g.ask(opLookup, rootID, []byte("up\x00"))
	if errno != 0 {
		t.Fatal(errno)
	}
	link := binary.LittleEndian.Uint64(out)
	if _, errno := g.ask(opLookup, link, []byte("v\x00")); errno == 0 {
		t.Error("a link is followed as a directory")
	}
	if _, errno := g.ask(opOpendir, link, make([]byte, 8)); errno == 0 {
		t.Error("a link is opened as a directory")
	}
}

func TestReadOnlyQuotaAndSetuid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, errno := newGuest(t, dir, Options{ReadOnly: true}).create("f"); errno != unix.EROFS {
		t.Errorf("create in a read-only directory: %v", errno)
	}
	g := newGuest(t, dir, Options{Quota: 64 << 10})
	h, errno := g.create("f")
	if errno != 0 {
		t.Fatal(errno)
	}
	if st, err := os.Stat(filepath.Join(dir, "f")); err != nil || st.Mode()&os.ModeSetuid != 0 {
		t.Errorf("a setuid program was made: %v, %v", st, err)
	}
	if errno := g.write(h, bytes.Repeat([]byte("x"), 32<<10)); errno != 0 {
		t.Errorf("a write with room: %v", errno)
	}
	if errno := g.write(h, bytes.Repeat([]byte("x"), 100<<10)); errno != unix.ENOSPC {
		t.Errorf("a write beyond the quota: %v", errno)
	}
}

// FuzzServer: whatever a guest sends, the server answers and stays alive.
func FuzzServer(f *testing.F) {
	f.Add(uint32(opLookup), uint64(1), []byte("name\x00"))
	f.Add(uint32(opSetattr), uint64(1), make([]byte, 88))
	f.Fuzz(func(t *testing.T, op uint32, node uint64, body []byte) {
		if op == opWrite || op == opFallocate || op == opSetattr {
			return // they may make large files
		}
		newGuest(t, t.TempDir(), Options{Quota: 1 << 20}).ask(op, node, body)
	})
}
