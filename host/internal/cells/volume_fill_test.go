package cells

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/result"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatACopyIs(t *testing.T) {
	t.Parallel()
	m := manager(t, t.TempDir())
	source, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	when := time.Unix(1_600_000_000, 123456000)
	must(t, os.MkdirAll(filepath.Join(source, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(source, "a/run"), []byte("x"), 0o755))
	must(t, os.Chmod(filepath.Join(source, "a/run"), 0o755|os.ModeSetuid))
	must(t, os.Chtimes(filepath.Join(source, "a/run"), when, when))
	must(t, os.Symlink(outside, filepath.Join(source, "out")))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(source, "a/dir")))
	must(t, unix.Mkfifo(filepath.Join(source, "fifo"), 0o600))
	sparse := filepath.Join(source, "sparse")
	f, err := os.Create(sparse)
	must(t, err)
	must(t, f.Truncate(1<<40))
	_, err = f.WriteAt([]byte("in the middle"), 1<<30)
	must(t, err)
	must(t, f.Close())
	must(t, os.Chmod(filepath.Join(source, "a/b"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(source, "a/b"), 0o755) })

	c, err := copyFrom(t, m, source)
	must(t, err)
	at := func(name string) string { return filepath.Join(c.Workspace, name) }
	st, err := os.Lstat(at("a/run"))
	must(t, err)
	if st.Mode() != 0o755 || !st.ModTime().Equal(when) {
		t.Errorf("a/run: mode %v, time %v", st.Mode(), st.ModTime())
	}
	if link, err := os.Readlink(at("out")); err != nil || link != outside {
		t.Errorf("out: %q, %v", link, err)
	}
	if st, err := os.Lstat(at("a/dir")); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("a symlink to a directory was followed: %v, %v", st, err)
	}
	if _, err := os.Lstat(at("fifo")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("fifo: %v", err)
	}
	if st, err := os.Lstat(at("a/b")); err != nil || st.Mode().Perm() != 0o555 {
		t.Errorf("a/b: %v, %v", st, err)
	}
	g, err := os.Open(at("sparse"))
	must(t, err)
	defer g.Close()
	buf := make([]byte, 13)
	_, err = g.ReadAt(buf, 1<<30)
	must(t, err)
	var raw unix.Stat_t
	must(t, unix.Fstat(int(g.Fd()), &raw))
	if !bytes.Equal(buf, []byte("in the middle")) || raw.Size != 1<<40 || raw.Blocks*512 > 64<<20 {
		t.Errorf("sparse file: %q, %d bytes, %d on the disk", buf, raw.Size, raw.Blocks*512)
	}
	must(t, m.Fill(t.Context(), c)) // again

	c.MissionID, c.Generation = "m1", 1
	job, ok := m.Work(c)
	if !ok {
		t.Fatal("no work in a copy")
	}
	store := &result.Store{Dir: t.TempDir()}
	got, err := store.Collect(t.Context(), job)
	if err != nil || !got.Complete || len(got.Files) != 0 {
		t.Errorf("an untouched copy has changes: %+v, %v", got, err)
	}
	must(t, m.dropVolume(c))
}

func TestACopyThatIsCutShort(t *testing.T) {
	t.Parallel()
	m := manager(t, t.TempDir())
	source := t.TempDir()
	must(t, os.WriteFile(filepath.Join(source, "a"), []byte("x"), 0o644))
	c, err := m.Prepare(Spec{Isolation: "isolation.x.y", Workspace: Workspace{Source: source, Mode: "copy"}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Fill(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("fill: %v", err)
	}
	if _, err := os.Stat(m.baseline(c)); err == nil {
		t.Error("half a copy counts as a whole one")
	}
	must(t, m.dropVolume(c))
	if left, err := os.ReadDir(m.volumesDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWorkOfAnEmptyWorkspace(t *testing.T) {
	t.Parallel()
	m := manager(t, t.TempDir())
	c, err := m.Prepare(Spec{Isolation: "isolation.x.y", Workspace: Workspace{Mode: "empty"}})
	must(t, err)
	if _, ok := m.Work(c); ok {
		t.Error("work in a workspace that was never made")
	}
	_, err = m.volume(c)
	must(t, err)
	if _, ok := m.Work(c); ok {
		t.Error("work in an empty workspace")
	}
	must(t, os.WriteFile(filepath.Join(c.Workspace, "a"), nil, 0o600))
	if job, ok := m.Work(c); !ok || job.Root != c.Workspace || job.Baseline != "" {
		t.Errorf("work: %+v, %v", job, ok)
	}
	must(t, m.dropVolume(c))
	must(t, m.dropVolume(c)) // again
	if _, ok := m.Work(c); ok {
		t.Error("work in a workspace that is gone")
	}
}
