package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// BuildRoot makes a root file system from a directory, a tar of one, an archive
// that "docker save" has written, or an OCI layout (a directory or a tar of
// one), and writes root.ext4 and root.json into dir. As an ordinary user it
// works too, and every file then belongs to that user in the guest.
func BuildRoot(ctx context.Context, dir, source string) (*Root, error) {
	mkfs, err := tool("mkfs.ext4")
	if err != nil {
		return nil, err
	}
	tree, r, done, err := open(dir, source)
	if err != nil {
		return nil, fmt.Errorf("root %s: %w", source, err)
	}
	defer done()
	size, files, err := measure(tree)
	if err != nil {
		return nil, fmt.Errorf("root %s: %w", source, err)
	}
	next := filepath.Join(dir, RootDisk+".new")
	defer os.Remove(next)
	_ = os.Remove(next)
	// It is only ever read, so it needs no journal and no room to grow.
	cmd := exec.CommandContext(ctx, mkfs, "-q", "-F", "-E", "root_owner=0:0", "-O", "^has_journal,^resize_inode", "-m", "0", "-b", "4096",
		"-N", strconv.FormatInt(files+files/8+256, 10), "-d", tree, next, strconv.FormatInt(size>>10, 10)+"k")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Chmod(next, 0o644); err != nil {
		return nil, err
	}
	r.V, r.Format, r.Bytes = Version, "ext4", size
	if r.SHA256, err = sumFile(next); err != nil {
		return nil, err
	}
	if err := os.Rename(next, filepath.Join(dir, RootDisk)); err != nil {
		return nil, err
	}
	return r, writeJSON(filepath.Join(dir, RootManifest), r)
}

// tool finds a program, also where only root's PATH would.
func tool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s is not installed (Debian: e2fsprogs)", name)
}

// measure says how large a file system has to be to hold a tree.
func measure(tree string) (size, files int64, err error) {
	err = filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		files++
		size += 4096
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += (info.Size() + 4095) &^ 4095
		}
		return nil
	})
	if err == nil && files < 2 {
		err = errors.New("there is nothing in it")
	}
	size += size/8 + files*256 + 8<<20
	return size &^ 4095, files, err
}

// open gives a directory that holds the tree of a source. What is made for it
// lies below dir and is removed by done.
func open(dir, source string) (tree string, r *Root, done func(), err error) {
	st, err := os.Stat(source)
	if err != nil {
		return "", nil, nil, err
	}
	scratch, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", nil, nil, err
	}
	done = func() { _ = removeAll(scratch) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	archive := source
	if !st.IsDir() {
		archive = filepath.Join(scratch, "archive")
		if err := extractFile(archive, source); err != nil {
			return "", nil, nil, err
		}
	}
	tree = filepath.Join(scratch, "tree")
	switch {
	case has(archive, "oci-layout") && has(archive, "index.json"):
		r, err = openOCI(archive, tree)
	case !st.IsDir() && has(archive, "manifest.json") && !has(archive, "etc"):
		r, err = openDocker(archive, tree)
	case st.IsDir():
		return archive, &Root{Source: "directory"}, done, nil
	default:
		return archive, &Root{Source: "tar"}, done, nil
	}
	return tree, r, done, err
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// removeAll removes a tree whose directories may be closed to their owner.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// within says whether a name in a manifest stays below its directory.
func within(name string) bool {
	return filepath.IsLocal(filepath.FromSlash(name)) && !strings.Contains(name, "\\")
}
