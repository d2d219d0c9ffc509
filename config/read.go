package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
)

// Limits on what is read. HCL's parser recurses over its input without a limit
// of its own, so size and depth are bounded before it sees anything.
const (
	maxFileBytes  = 1 << 20
	maxTotalBytes = 4 << 20
	maxFiles      = 256
)

// readSources reads the file, or the *.hcl files of the directory, at path.
func readSources(path string) ([]Source, hcl.Diagnostics) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if !info.IsDir() {
		b, err := readRegular(path, maxFileBytes, nil)
		if err != nil {
			return nil, cannotRead(path, err)
		}
		return []Source{{Name: path, Bytes: b}}, nil
	}
	names, err := hclFiles(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	if len(names) == 0 {
		return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No configuration",
			Detail: fmt.Sprintf("The directory %s has no *.hcl file. `airlock init %s` writes one.", path, filepath.Join(path, "airlock.hcl"))}}
	}
	if len(names) > maxFiles {
		return nil, cannotRead(path, fmt.Errorf("%d files; at most %d make a configuration", len(names), maxFiles))
	}
	var sources []Source
	var diags hcl.Diagnostics
	total := 0
	for _, name := range names {
		b, err := readRegular(name, maxFileBytes, nil)
		if err != nil {
			diags = append(diags, cannotRead(name, err)...)
			continue
		}
		if total += len(b); total > maxTotalBytes {
			return nil, cannotRead(path, fmt.Errorf("the files are larger than %d bytes together", maxTotalBytes))
		}
		sources = append(sources, Source{Name: name, Bytes: b})
	}
	return sources, diags
}

// hclFiles lists the configuration files of a directory in name order. The
// plugins' lock file lies in the same directory by default and is no part of it.
func hclFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".lock.hcl") {
			continue
		}
		names = append(names, filepath.Join(dir, name))
	}
	return names, nil
}

// readRegular reads a regular file of at most limit bytes. It never blocks on a
// FIFO, and check sees the mode of the very file that is read.
func readRegular(path string, limit int64, check func(os.FileMode) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		var perr *os.PathError
		if errors.As(err, &perr) {
			err = perr.Err
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if check != nil {
		if err := check(info.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return b, nil
}

func cannotRead(path string, err error) hcl.Diagnostics {
	var perr *os.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Configuration cannot be read", Detail: fmt.Sprintf("%s: %v.", path, err)}}
}
