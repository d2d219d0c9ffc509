package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Lock says which builds of which plugins may run.
//
//	plugin "airlock-isolation-docker" {
//	  sha256 = "9f86d081…"
//	}
type Lock struct {
	File string
	Sums map[string]string // file name -> sha256, lower-case hex
}

// ReadLock reads a lock file. No file = nil, and nothing is enforced. Anything
// else that is wrong with it is an error, with file, line and column.
func ReadLock(file string) (*Lock, error) {
	if file == "" {
		return nil, nil
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if fault := safeFile(file); fault != nil {
		return nil, fault
	}
	parsed, diags := hclparse.NewParser().ParseHCLFile(file)
	if diags.HasErrors() {
		return nil, diags
	}
	var content struct {
		Plugins []struct {
			File   string `hcl:"file,label"`
			SHA256 string `hcl:"sha256"`
		} `hcl:"plugin,block"`
	}
	if diags := gohcl.DecodeBody(parsed.Body, nil, &content); diags.HasErrors() {
		return nil, diags
	}
	lock := &Lock{File: file, Sums: make(map[string]string)}
	digest := regexp.MustCompile(`^[0-9a-f]{64}$`)
	for _, p := range content.Plugins {
		if !digest.MatchString(p.SHA256) {
			return nil, fmt.Errorf("%s: the sha256 of plugin %q is not 64 lower-case hex digits", file, p.File)
		}
		if _, twice := lock.Sums[p.File]; twice {
			return nil, fmt.Errorf("%s: plugin %q is named twice", file, p.File)
		}
		lock.Sums[p.File] = p.SHA256
	}
	return lock, nil
}

// WriteLock writes a lock file whole, sums keyed by file name.
func WriteLock(file string, sums map[string]string) error {
	out := hclwrite.NewEmptyFile()
	for n, name := range slices.Sorted(maps.Keys(sums)) {
		if n > 0 {
			out.Body().AppendNewline()
		}
		block := out.Body().AppendNewBlock("plugin", []string{name})
		block.Body().SetAttributeValue("sha256", cty.StringVal(sums[name]))
	}
	return renameio.WriteFile(file, out.Bytes(), 0o644)
}

// SumDir is the lock content for every plugin of a directory as it is now.
func SumDir(dir string) (map[string]string, error) {
	found, err := Find(dir)
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(found))
	for _, f := range found {
		if sums[f.File], err = SumFile(f.Path); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// SumFile is a file's SHA-256 in lower-case hex. What is no regular file is
// refused: a read of it may not end.
func SumFile(path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file (mode %s)", path, info.Mode())
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// check compares a build with the lock. A nil lock allows everything.
func (l *Lock) check(found Found, sum string) *Fault {
	if l == nil {
		return nil
	}
	want, ok := l.Sums[found.File]
	if !ok {
		return faultf(NotLocked, "%s is not in the lock file %s", found.File, l.File).
			advise("if you trust %s, run `airlock plugin lock`", found.Path)
	}
	if want != sum {
		return faultf(WrongChecksum, "the sha256 of %s is %s, but the lock file %s says %s", found.Path, sum, l.File, want).
			advise("put the locked build back, or run `airlock plugin lock` if you trust this one")
	}
	return nil
}

// lockFault turns a lock file that cannot be read into a fault: with a lock
// that says nothing, no plugin may run.
func lockFault(file string, err error) *Fault {
	var diags hcl.Diagnostics
	text := err.Error()
	if errors.As(err, &diags) {
		text = diagText(diags)
	}
	return faultf(LockUnusable, "the lock file %s cannot be used, so no plugin may run: %s", file, text).
		advise("repair it, or write it anew with `airlock plugin lock`")
}
