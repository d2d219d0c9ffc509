package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile bounds what is read of one file of a kernel package.
const maxFile = 256 << 20

// BuildKernel takes a kernel and the modules that a guest needs out of a
// package (a Debian linux-image-….deb, or a directory into which one was
// unpacked, or /) and writes vmlinux, modules/ and kernel.json into dir.
func BuildKernel(ctx context.Context, dir, source string) (*Kernel, error) {
	p := &pack{files: map[string][]byte{}}
	st, err := os.Stat(source)
	if err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	if st.IsDir() {
		err = p.readDir(source)
	} else {
		err = p.readDeb(ctx, source)
	}
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", source, err)
	}
	k, err := p.write(dir)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", source, err)
	}
	return k, nil
}

// pack is what is used of a kernel package: the newest release in it.
type pack struct {
	release string
	image   []byte
	builtin map[string]bool
	// files are the modules by name, as they lie in the package.
	files map[string][]byte
	names map[string]string
}

// keep says whether a file of a package is used at all.
func keep(name string) bool {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if strings.HasPrefix(name, "boot/vmlinu") || strings.HasSuffix(name, "/modules.builtin") {
		return true
	}
	n, ok := moduleName(name)
	return ok && strings.Contains(name, "lib/modules/") && mayNeed(n)
}

// mayNeed is wide enough for what virtio, ext4 and overlay need in any kernel,
// so that the rest of a package is not held in memory.
func mayNeed(name string) bool {
	if slices.ContainsFunc(wants, func(w want) bool { return w.name == name }) {
		return true
	}
	return strings.HasPrefix(name, "virtio") || slices.Contains([]string{
		"fuse", "failover", "net_failover", "jbd2", "mbcache", "crc16", "crc32c_generic", "libcrc32c", "dax", "nd_virtio", "libnvdimm",
	}, name)
}

func (p *pack) add(name string, b []byte) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	switch n, isModule := moduleName(name); {
	case isModule:
		if p.names == nil {
			p.names = map[string]string{}
		}
		p.files[n], p.names[n] = b, path.Base(name)
	case strings.HasSuffix(name, "/modules.builtin"):
		p.builtin = map[string]bool{}
		for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
			if n, ok := moduleName(sc.Text()); ok {
				p.builtin[n] = true
			}
		}
	default:
		p.image = b
		_, p.release, _ = strings.Cut(path.Base(name), "-")
	}
}

func (p *pack) readDeb(ctx context.Context, file string) error {
	tool, err := exec.LookPath("dpkg-deb")
	if err != nil {
		return errors.New("dpkg-deb is needed to open a package; or unpack it, and give the directory")
	}
	cmd := exec.CommandContext(ctx, tool, "--fsys-tarfile", file)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = p.readTar(out)
	_, _ = io.Copy(io.Discard, out)
	if e := cmd.Wait(); err == nil && e != nil {
		err = fmt.Errorf("dpkg-deb: %w: %s", e, bytes.TrimSpace(said.Bytes()))
	}
	return err
}

func (p *pack) readTar(r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !keep(h.Name) {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, maxFile))
		if err != nil {
			return err
		}
		p.add(h.Name, b)
	}
}

// readDir reads an unpacked package, and of several releases the newest.
func (p *pack) readDir(dir string) error {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinu[xz]-*"))
	if err != nil || len(images) == 0 {
		return errors.New("there is no boot/vmlinuz-* in it")
	}
	newest := slices.MaxFunc(images, func(a, b string) int { return naturally(filepath.Base(a), filepath.Base(b)) })
	_, release, _ := strings.Cut(filepath.Base(newest), "-")
	b, err := os.ReadFile(newest)
	if err != nil {
		return err
	}
	p.add("boot/"+filepath.Base(newest), b)
	modules := filepath.Join(dir, "lib", "modules", release)
	return filepath.WalkDir(modules, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name := "lib/modules/" + release + strings.TrimPrefix(filepath.ToSlash(file), filepath.ToSlash(modules))
		if !keep(name) {
			return nil
		}
		b, err := os.ReadFile(file)
		if err == nil {
			p.add(name, b)
		}
		return err
	})
}

// naturally compares names with numbers in them as a person would.
func naturally(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if d := len(m) - len(n); d != 0 {
				return d
			}
			if d := strings.Compare(m, n); d != 0 {
				return d
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func (p *pack) find(name string) (*module, error) {
	if b, ok := p.files[name]; ok {
		return newModule(p.names[name], b)
	}
	if p.builtin[name] {
		return nil, nil
	}
	return nil, fmt.Errorf("the kernel has no %s, neither built in nor as a module", name)
}

// write writes the kernel's directory; the manifest comes last.
func (p *pack) write(dir string) (*Kernel, error) {
	if p.image == nil {
		return nil, errors.New("there is no boot/vmlinuz-* in it")
	}
	kernel, err := vmlinux(p.image)
	if err != nil {
		return nil, err
	}
	modules, err := order(p.find)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(dir, modulesDir)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, modulesDir), 0o755); err != nil {
		return nil, err
	}
	k := &Kernel{V: Version, Release: p.release, SHA256: sum(kernel), Modules: []Module{}}
	for _, m := range modules {
		file := path.Join(modulesDir, m.name+".ko")
		if err := copyTo(filepath.Join(dir, file), bytes.NewReader(m.bytes), 0o644); err != nil {
			return nil, err
		}
		k.Modules = append(k.Modules, Module{Name: m.name, File: file, SHA256: sum(m.bytes), Group: m.group})
	}
	if err := copyTo(filepath.Join(dir, VMLinux), bytes.NewReader(kernel), 0o644); err != nil {
		return nil, err
	}
	return k, writeJSON(filepath.Join(dir, KernelManifest), k)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
