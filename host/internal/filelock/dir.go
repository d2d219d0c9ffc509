package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Dir is a directory that was taken for this process. The directory itself is
// locked, so that deleting the file in it, whose use is to name the owner, lets
// nobody in.
type Dir struct {
	path string
	dir  *os.File
	file *os.File
}

// TakeDir locks a directory and the file of that name in it, which is made. It
// fails with a HeldError when another process, or another TakeDir of this one,
// has one of them.
func TakeDir(path, name string) (*Dir, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = lock(dir, path, func() int {
		f, err := os.Open(filepath.Join(path, name))
		if err != nil {
			return 0
		}
		defer f.Close()
		return owner(f)
	})
	if err != nil {
		return nil, err
	}
	file, err := Take(filepath.Join(path, name))
	if err != nil {
		return nil, errors.Join(err, Release(dir))
	}
	return &Dir{path: path, dir: dir, file: file}, nil
}

// Check says whether the path still leads to the directory that was taken; an
// error says what does not.
func (d *Dir) Check() error {
	ours, err := d.dir.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(d.path)
	switch {
	case err != nil:
		return err
	case !os.SameFile(ours, there):
		return fmt.Errorf("%s is another directory than the one that was taken", d.path)
	}
	return nil
}

// Release gives the directory back.
func (d *Dir) Release() error { return errors.Join(Release(d.file), Release(d.dir)) }
