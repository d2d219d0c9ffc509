package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Whiteouts of a layer: a file of this prefix removes what it names, and the
// opaque one everything that the layers before have put into its directory.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// extractFile unpacks a tar, packed with gzip or not, into a new directory.
func extractFile(dir, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return extract(dir, f)
}

// extract unpacks a tar over what is in a directory, as a layer. Nothing is
// written outside of the directory, whatever names and links the tar holds.
func extract(dir string, r io.Reader) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	br := bufio.NewReader(r)
	var in io.Reader = br
	switch magic, _ := br.Peek(4); {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return err
		}
		in = z
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(magic, []byte{0xfd, '7', 'z'}), bytes.HasPrefix(magic, []byte("BZh")):
		return errors.New("it is packed with zstd, xz or bzip2; unpack it first, or pack it with gzip")
	}
	made := map[string]bool{} // by this layer
	for t := tar.NewReader(in); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" {
			continue
		}
		if err := place(root, name, h, t, made); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func place(root *os.Root, name string, h *tar.Header, r io.Reader, made map[string]bool) error {
	dir, base := path.Split(name)
	dir = path.Clean("./" + dir)
	switch {
	case base == opaque:
		return clearDir(root, dir, made)
	case strings.HasPrefix(base, whiteout):
		return root.RemoveAll(path.Join(dir, strings.TrimPrefix(base, whiteout)))
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made[name] = true
	mode := os.FileMode(h.Mode & 0o777)
	if st, err := root.Lstat(name); err == nil && !(st.IsDir() && h.Typeflag == tar.TypeDir) {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		if err = root.Mkdir(name, 0o755); errors.Is(err, os.ErrExist) {
			err = nil
		}
	case tar.TypeReg:
		var f *os.File
		if f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_, err = io.Copy(f, r)
			err = errors.Join(err, f.Close())
		}
	case tar.TypeSymlink:
		if err = root.Symlink(h.Linkname, name); err == nil {
			err = own(root.Lchown(name, h.Uid, h.Gid))
		}
		return err
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	default:
		return nil // devices, fifos: the guest has its own /dev
	}
	if err == nil {
		err = own(root.Lchown(name, h.Uid, h.Gid))
	}
	if err == nil { // after the owner: a change of owner clears these bits
		err = root.Chmod(name, mode|special(h.Mode))
	}
	return err
}

func special(mode int64) (m os.FileMode) {
	for bit, is := range map[int64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if mode&bit != 0 {
			m |= is
		}
	}
	return m
}

// own forgives an ordinary user that it cannot give files away.
func own(err error) error {
	if os.Geteuid() != 0 && errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// clearDir removes what earlier layers have put into a directory.
func clearDir(root *os.Root, dir string, made map[string]bool) error {
	d, err := root.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	_ = d.Close()
	for _, n := range names {
		if at := path.Join(dir, n); err == nil && !made[at] {
			err = root.RemoveAll(at)
		}
	}
	return err
}
