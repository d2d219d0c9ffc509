package cli

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type member struct {
	typ        byte
	name, text string
	sum        string // of the manifest; empty: the right one, "-": not in it
}

// archive makes a tar and the manifest that goes with it.
func archive(t *testing.T, members ...member) (*bytes.Buffer, *files) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	list := &files{}
	for _, m := range members {
		h := &tar.Header{Typeflag: m.typ, Name: m.name, Mode: 0o6755}
		if m.typ == tar.TypeReg {
			h.Size = int64(len(m.text))
		} else {
			h.Linkname = m.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if m.typ == tar.TypeReg {
			if _, err := w.Write([]byte(m.text)); err != nil {
				t.Fatal(err)
			}
		}
		if m.sum == "-" {
			continue
		}
		f := fileChange{Path: strings.TrimSuffix(m.name, "/"), Kept: true, SHA256: m.sum}
		if f.SHA256 == "" && m.typ == tar.TypeReg {
			sum := sha256.Sum256([]byte(m.text))
			f.SHA256 = hex.EncodeToString(sum[:])
		}
		list.Files = append(list.Files, f)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, list
}

func extract(t *testing.T, dir string, force bool, b *bytes.Buffer, list *files) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	x := &extraction{root: root, force: force, sums: map[string]string{}}
	if err := x.expect(list, dir); err != nil {
		return err
	}
	return x.all(b)
}

func TestAnArchiveThatWantsOut(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][]member{
		"a parent":               {{tar.TypeReg, "../out/f", "x", ""}},
		"an absolute path":       {{tar.TypeReg, "/tmp/airlock-out", "x", ""}},
		"in the middle":          {{tar.TypeReg, "a/../../out/f", "x", ""}},
		"not in the manifest":    {{tar.TypeReg, "f", "x", "-"}},
		"twice":                  {{tar.TypeReg, "f", "x", ""}, {tar.TypeReg, "f", "x", "-"}},
		"another content":        {{tar.TypeReg, "f", "x", strings.Repeat("0", 64)}},
		"through its symlink":    {{tar.TypeSymlink, "l", "../out", ""}, {tar.TypeReg, "l/f", "x", ""}},
		"a hard link":            {{tar.TypeLink, "f", "../out/secret", ""}},
		"a device":               {{tar.TypeChar, "f", "", ""}},
		"a symlink for a parent": {{tar.TypeReg, "d/f", "x", ""}, {tar.TypeSymlink, "d", "../out", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			dir, out := filepath.Join(top, "dir"), filepath.Join(top, "out")
			for _, d := range []string{dir, out} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			b, list := archive(t, members...)
			if err := extract(t, dir, true, b, list); err == nil {
				t.Error("it was taken")
			}
			if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
				t.Errorf("written outside: %v, %v", left, err)
			}
		})
	}
}

func TestADirectoryWithASymlinkThatLeadsOut(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, out := filepath.Join(top, "dir"), filepath.Join(top, "out")
	for _, d := range []string{dir, out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(out, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	b, list := archive(t, member{tar.TypeReg, "d/f", "x", ""})
	if err := extract(t, dir, true, b, list); err == nil {
		t.Error("it was followed")
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
}

func TestExtraction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	members := []member{{tar.TypeDir, "d/", "", ""}, {tar.TypeSymlink, "d/l", "/etc/passwd", ""}, {tar.TypeReg, "d/f", "x", ""}}
	b, list := archive(t, members...)
	if err := extract(t, dir, false, b, list); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, "d/f"))
	if err != nil || st.Mode() != 0o755 {
		t.Errorf("d/f: %v, %v", st.Mode(), err)
	}
	b, list = archive(t, members...)
	if err := extract(t, dir, false, b, list); ExitCode(err) != ExitConflict {
		t.Errorf("over what is there: %v", err)
	}
	b, list = archive(t, members...)
	if err := extract(t, dir, true, b, list); err != nil {
		t.Errorf("by force: %v", err)
	}
	b, list = archive(t, members[:2]...)
	list.Files = append(list.Files, fileChange{Path: "missing", Kept: true})
	if err := extract(t, t.TempDir(), false, b, list); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a short archive: %v", err)
	}
}
