package cli

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// badArchive is an archive that is not to be trusted.
type badArchive struct{ text string }

func (b *badArchive) Error() string { return b.text }

func badf(format string, args ...any) error { return &badArchive{fmt.Sprintf(format, args...)} }

// extraction writes an archive below a directory that it never leaves: every
// name goes through the root, and symlinks are made last, so that nothing is
// written through one of the archive's.
type extraction struct {
	root  *os.Root
	force bool
	sums  map[string]string // of the manifest, by path; symlinks and directories have none
	links []*tar.Header
	dirs  []*tar.Header
	leads int // symlinks that lead out
}

// expect notes what must come and refuses to overwrite, before anything is
// written.
func (x *extraction) expect(list *files, dir string) error {
	var there []string
	for _, f := range list.Files {
		if !f.Kept {
			continue
		}
		name := f.name()
		if !filepath.IsLocal(name) {
			return failf(ExitFailed, "the host names a path outside of the workspace: %q", name)
		}
		x.sums[name] = f.SHA256
		st, err := x.root.Lstat(name)
		if err == nil && (f.Type != "dir" || !st.IsDir()) {
			there = append(there, printable(filepath.Join(dir, name)))
		}
	}
	if len(there) == 0 || x.force {
		return nil
	}
	slices.Sort(there)
	more := ""
	if len(there) > 3 {
		more = fmt.Sprintf(" and %d more", len(there)-3)
		there = there[:3]
	}
	return failf(ExitConflict, "already there: %s%s; nothing was written (--force overwrites)", strings.Join(there, ", "), more)
}

func (x *extraction) all(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		h.Name = strings.TrimSuffix(h.Name, "/")
		sum, known := x.sums[h.Name]
		if !known || !filepath.IsLocal(h.Name) {
			return badf("%q is not in it, or comes twice", h.Name)
		}
		delete(x.sums, h.Name)
		if err := x.one(h, t, sum); err != nil {
			return err
		}
	}
	for _, h := range x.links {
		if err := x.link(h); err != nil {
			return err
		}
	}
	for _, h := range slices.Backward(x.dirs) {
		if err := x.root.Chmod(h.Name, perm(h)); err != nil {
			return err
		}
	}
	for name := range x.sums {
		return badf("%q is missing", name)
	}
	return nil
}

func (x *extraction) one(h *tar.Header, r io.Reader, sum string) error {
	if err := x.root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		x.dirs = append(x.dirs, h)
		if st, err := x.root.Lstat(h.Name); err == nil && !st.IsDir() && x.force {
			if err := x.root.Remove(h.Name); err != nil {
				return err
			}
		}
		return x.root.MkdirAll(h.Name, 0o755)
	case tar.TypeSymlink:
		x.links = append(x.links, h)
		return nil
	case tar.TypeReg:
		return x.file(h, r, sum)
	default:
		return badf("%q is neither a file, a directory nor a symlink", h.Name)
	}
}

func (x *extraction) file(h *tar.Header, r io.Reader, sum string) error {
	if err := x.clear(h.Name); err != nil {
		return err
	}
	f, err := x.root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, digest), r)
	if err = errors.Join(err, f.Chmod(perm(h)), f.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != sum {
		return badf("%q has the digest %s, not %s", h.Name, got, sum)
	}
	return x.root.Chtimes(h.Name, time.Time{}, h.ModTime)
}

func (x *extraction) link(h *tar.Header) error {
	if err := x.clear(h.Name); err != nil {
		return err
	}
	if !filepath.IsLocal(filepath.Join(filepath.Dir(h.Name), h.Linkname)) || filepath.IsAbs(h.Linkname) {
		x.leads++
	}
	return x.root.Symlink(h.Linkname, h.Name)
}

// clear makes room for a file; what is in the way is removed with --force only,
// and never a directory that is not empty.
func (x *extraction) clear(name string) error {
	if !x.force {
		return nil
	}
	if err := x.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func perm(h *tar.Header) os.FileMode { return os.FileMode(h.Mode & 0o777) } //nolint:gosec // nine bits
