package result

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// baselineOf writes down what a tree is now.
func baselineOf(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base")
	b, err := NewBaseline(path)
	must(t, err)
	must(t, Walk{
		Visit:  func(_ *Directory, _ string, e Entry) error { return b.Add(e) },
		Missed: func(path string, why error) { t.Fatal(path, why) },
	}.Tree(t.Context(), root))
	must(t, b.Close())
	return path
}

// unpacked reads a tar: name -> "type mode content-or-target".
func unpacked(t *testing.T, s *Store, mission string) map[string]string {
	t.Helper()
	stored, err := s.Open(mission)
	must(t, err)
	f, err := stored.OpenTar()
	must(t, err)
	defer f.Close()
	gz, err := gzip.NewReader(f)
	must(t, err)
	out := map[string]string{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		if h.Typeflag == tar.TypeSymlink {
			text = []byte(h.Linkname)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s has an owner: %d %d %q", h.Name, h.Uid, h.Gid, h.Uname)
		}
		out[h.Name] = fmt.Sprintf("%c %04o %.40s", h.Typeflag, h.Mode, text)
	}
}

func job(root, base string) Job {
	return Job{MissionID: "m/../1", CellID: "c1", Generation: 1, Mode: "copy", Source: "/src", Root: root, Baseline: base}
}

func lines(m *Manifest) []string {
	var out []string
	for _, f := range m.Files {
		out = append(out, fmt.Sprintf("%s %s %s kept=%v %s", f.Change, f.Type, f.Path, f.Kept, f.Note))
	}
	slices.Sort(out)
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatAMissionChanged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root+"/same", "same")
	put(t, root+"/edited", "before")
	put(t, root+"/gone/a", "a")
	put(t, root+"/gone/b", "b")
	put(t, root+"/becomes", "a file")
	put(t, root+"/mode", "x")
	must(t, os.Symlink("same", root+"/link"))
	base := baselineOf(t, root)

	put(t, root+"/edited", "afterw") // as long as before
	must(t, os.RemoveAll(root+"/gone"))
	must(t, os.Remove(root+"/becomes"))
	must(t, os.Symlink("/etc/passwd", root+"/becomes"))
	must(t, os.Chmod(root+"/mode", 0o600))
	put(t, root+"/new/deep/file", "new")
	must(t, os.Symlink("..", root+"/up"))
	must(t, unix.Mkfifo(root+"/fifo", 0o600))
	must(t, os.WriteFile(root+"/su", []byte("x"), 0o755))
	must(t, os.Chmod(root+"/su", 0o755|os.ModeSetuid))
	l, err := net.Listen("unix", root+"/so")
	must(t, err)
	defer l.Close()
	put(t, root+"/odd\xff\nname", "odd")

	s := &Store{Dir: t.TempDir()}
	m, err := s.Collect(t.Context(), job(root, base))
	must(t, err)
	equal(t, "manifest", lines(m), []string{
		"modified file edited kept=true ", "modified symlink becomes kept=true ", "modified file mode kept=true ",
		"added dir new kept=true ", "added dir new/deep kept=true ", "added file new/deep/file kept=true ",
		"added symlink up kept=true ", "added fifo fifo kept=false a fifo is not kept", "added socket so kept=false a socket is not kept",
		"added file su kept=true setuid and setgid bits are dropped", "added file odd\uFFFD\nname kept=true ",
		"deleted dir gone kept=false ", "deleted file gone/a kept=false ", "deleted file gone/b kept=false ",
	})
	if m.Added != 8 || m.Modified != 3 || m.Deleted != 3 || m.Dropped != 2 || !m.Complete {
		t.Errorf("totals: %+v", m)
	}
	got := unpacked(t, s, "m/../1")
	for name, want := range map[string]string{
		"edited": "0 0644 afterw", "becomes": "2 0777 /etc/passwd", "up": "2 0777 ..", "new/deep/": "5 0755 ",
		"new/deep/file": "0 0644 new", "su": "0 0755 x", "mode": "0 0600 x", "odd\xff\nname": "0 0644 odd",
	} {
		if got[name] != want {
			t.Errorf("%q in the tar: %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 9 {
		t.Errorf("the tar has %d entries: %v", len(got), got)
	}
}

func TestCollectingAgain(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root+"/a", "a")
	s := &Store{Dir: t.TempDir()}
	first, err := s.Collect(t.Context(), job(root, ""))
	must(t, err)
	put(t, root+"/b", "b")
	again, err := s.Collect(t.Context(), job(root, ""))
	must(t, err)
	if len(first.Files) != 1 || len(again.Files) != 1 {
		t.Errorf("a second collection of a cell: %v", lines(again))
	}
	late := job(root, "")
	late.CellID, late.Generation = "c0", 0
	if m, err := s.Collect(t.Context(), late); err != nil || m.CellID != "c1" {
		t.Errorf("an older generation took the place of a newer one: %+v, %v", m, err)
	}
	next := job(root, "")
	next.CellID, next.Generation = "c2", 2
	if m, err := s.Collect(t.Context(), next); err != nil || len(m.Files) != 2 {
		t.Errorf("a newer generation: %+v, %v", m, err)
	}
	must(t, s.Remove("m/../1"))
	if _, err := s.Open("m/../1"); !errors.Is(err, ErrNone) {
		t.Errorf("after the removal: %v", err)
	}
}

func TestACollectionThatIsCutShort(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root+"/a", "a")
	s := &Store{Dir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Collect(ctx, job(root, "")); !errors.Is(err, context.Canceled) {
		t.Errorf("collect: %v", err)
	}
	must(t, os.Mkdir(filepath.Join(s.Dir, tempPrefix+"x"), 0o700)) // of a kill
	must(t, s.Sweep())
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if m, err := s.Collect(t.Context(), job(root, "")); err != nil || len(m.Files) != 1 {
		t.Errorf("repeated: %+v, %v", m, err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root+"/a/b/c/d/file", "deep")
	put(t, root+"/big", strings.Repeat("x", 2000))
	put(t, root+"/z1", "1")
	put(t, root+"/z2", "2")
	f, err := os.Create(root + "/hole")
	must(t, err)
	must(t, f.Truncate(1<<42))
	must(t, f.Close())
	base := filepath.Join(t.TempDir(), "base")
	b, err := NewBaseline(base)
	must(t, err)
	must(t, b.Add(Entry{Path: "a/b/c/d/other", Type: File})) // below what is too deep to be known
	must(t, b.Close())
	s := &Store{Dir: t.TempDir(), Limits: Limits{Bytes: 1000, Files: 6, Depth: 3}}
	m, err := s.Collect(t.Context(), job(root, base))
	must(t, err)
	if m.Complete || m.Unlisted != 1 || m.Deleted != 0 || m.Bytes > 1000 {
		t.Errorf("%+v", m)
	}
	text := strings.Join(m.Notes, "\n")
	for _, want := range []string{`"/a/b/c" and what is below it was not looked at: it is deeper than 3`, `"big" is not kept`, `"hole" is not kept`, "1 more changes are not listed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no note %q in\n%s", want, text)
		}
	}
}

func TestWithoutABaseline(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root+"/a", "a")
	s := &Store{Dir: t.TempDir()}
	m, err := s.Collect(t.Context(), job(root, filepath.Join(t.TempDir(), "missing")))
	if err != nil || m.Complete || m.Added != 1 || !strings.Contains(m.Notes[0], "is not known") {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAHardLinkToSomebodyElsesFile(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	root := filepath.Join(top, "root")
	put(t, top+"/secret", "secret")
	put(t, root+"/own", "own")
	must(t, os.Link(top+"/secret", root+"/stolen"))
	j := job(root, "")
	j.Owners = []uint32{uint32(os.Getuid()) + 1}
	s := &Store{Dir: t.TempDir()}
	m, err := s.Collect(t.Context(), j)
	must(t, err)
	equal(t, "manifest", lines(m), []string{"added file own kept=true ", "added file stolen kept=false a hard link to a file of somebody else is not kept"})
}

// A workspace that changes under the collection: names turn into symlinks to
// what must not be read, and back. Nothing of that may be in the tar.
func TestASymlinkRace(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	put(t, top+"/outside/f", "SECRET")
	root := filepath.Join(top, "root")
	for i := range 50 {
		put(t, fmt.Sprintf("%s/d%02d/f", root, i), "fine")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i = (i + 1) % 50 {
			d := fmt.Sprintf("%s/d%02d", root, i)
			_ = os.Rename(d, d+".away")
			_ = os.Symlink(top+"/outside", d)
			_ = os.Remove(d)
			_ = os.Rename(d+".away", d)
			_ = os.Rename(d+"/f", d+"/g")
			_ = os.Symlink(top+"/outside/f", d+"/f")
			_ = os.Remove(d + "/f")
			_ = os.Rename(d+"/g", d+"/f")
		}
	}()
	s := &Store{Dir: t.TempDir()}
	for i := range 40 {
		j := job(root, "")
		j.CellID, j.Generation = fmt.Sprint("c", i), uint64(i) //nolint:gosec // small
		if _, err := s.Collect(t.Context(), j); err != nil {
			t.Error(err)
			break
		}
		for name, text := range unpacked(t, s, j.MissionID) {
			if strings.Contains(text, "SECRET") {
				t.Errorf("%s was read through a symlink", name)
			}
		}
	}
	cancel()
	<-done
}

func TestAFileThatShrinksWhileItIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/f", "abc")
	p, err := newPack(dir + "/tar")
	must(t, err)
	f, err := os.Open(dir + "/f")
	must(t, err)
	defer f.Close()
	if _, changed, err := p.file(Entry{Path: "f", Type: File, Size: 10_000}, f); err != nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	must(t, p.close())
}
