package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// want is a module that a guest needs.
type want struct {
	name, group string
	required    bool
}

// wants are what a guest needs of its kernel, built in or as modules.
var wants = []want{
	{"virtio_pci", groupBase, true}, {"virtio_console", groupBase, true}, {"virtio_blk", groupBase, true},
	{"ext4", groupBase, true}, {"overlay", groupBase, true},
	{"fuse", "share", true}, {"virtio_net", "net", false},
}

const groupBase = "base"

// module is a module that was found, unpacked.
type module struct {
	name  string
	bytes []byte
	needs []string
}

// moduleName is how the kernel calls the module in a file; ok = it is one.
func moduleName(file string) (name string, ok bool) {
	base := path.Base(file)
	for _, suffix := range []string{".ko", ".ko.gz", ".ko.xz", ".ko.zst"} {
		if n, found := strings.CutSuffix(base, suffix); found {
			return strings.ReplaceAll(n, "-", "_"), true
		}
	}
	return "", false
}

// newModule reads a module as it lies in a package.
func newModule(file string, b []byte) (*module, error) {
	name, _ := moduleName(file)
	if strings.HasSuffix(file, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(io.LimitReader(z, 64<<20))
		}
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("module %s cannot be read (packed with xz or zstd?): %w", name, err)
	}
	m := &module{name: name, bytes: b}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("module %s has no .modinfo", name)
	}
	info, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok && list != "" {
			for n := range strings.SplitSeq(list, ",") {
				m.needs = append(m.needs, strings.ReplaceAll(n, "-", "_"))
			}
		}
	}
	return m, nil
}

// ordered is a module in load order with the group that it is loaded for.
type ordered struct {
	*module
	group string
}

// order puts what is wanted, and what that needs, into load order. find answers
// nil for a module that the kernel has built in, an error for one that it does
// not have.
func order(find func(name string) (*module, error)) ([]ordered, error) {
	var out []ordered
	done := map[string]bool{}
	var add func(name, group string, via []string) error
	add = func(name, group string, via []string) error {
		if done[name] {
			return nil
		}
		if slices.Contains(via, name) {
			return fmt.Errorf("the modules %s need each other", strings.Join(append(via, name), ", "))
		}
		m, err := find(name)
		if err != nil {
			return err
		}
		if m != nil {
			for _, n := range m.needs {
				if err := add(n, group, append(via, name)); err != nil {
					return err
				}
			}
			out = append(out, ordered{m, group})
		}
		done[name] = true
		return nil
	}
	for _, w := range wants {
		before := len(out)
		if err := add(w.name, w.group, nil); err != nil {
			if w.required {
				return nil, err
			}
			out = out[:before]
		}
	}
	return out, nil
}
