package driver

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/initrd"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// What airlock image build writes. The types there (host/internal/image) are
// the same; that both fit is seen by every test that boots a VM.
const imageVersion = 1

type kernelImage struct {
	V       int    `json:"v"`
	Release string `json:"release"`
	SHA256  string `json:"sha256"`
	Modules []struct {
		Name   string `json:"name"`
		File   string `json:"file"`
		SHA256 string `json:"sha256"`
		Group  string `json:"group"`
	} `json:"modules"`

	file string // vmlinux
}

type rootImage struct {
	V      int    `json:"v"`
	Format string `json:"format"`
	SHA256 string `json:"sha256"`

	file string
}

func (c *Config) kernel() string {
	if c.Kernel != nil && *c.Kernel != "" {
		return *c.Kernel
	}
	return filepath.Join(c.Image, "vmlinux")
}

func loadKernel(vmlinux string) (*kernelImage, error) {
	k := &kernelImage{file: vmlinux}
	if err := loadManifest(filepath.Join(filepath.Dir(vmlinux), "kernel.json"), k); err != nil {
		return nil, err
	}
	if k.V < 1 || k.V > imageVersion {
		return nil, fmt.Errorf("%s: it has version %d; this driver knows 1 to %d", vmlinux, k.V, imageVersion)
	}
	for _, m := range k.Modules {
		if !filepath.IsLocal(m.File) {
			return nil, fmt.Errorf("%s: the module %q lies elsewhere", vmlinux, m.File)
		}
	}
	_, err := os.Stat(vmlinux)
	return k, err
}

func loadRoot(dir string) (*rootImage, error) {
	r := &rootImage{file: filepath.Join(dir, "root.ext4")}
	if err := loadManifest(filepath.Join(dir, "root.json"), r); err != nil {
		return nil, err
	}
	if r.V < 1 || r.V > imageVersion || r.Format != "ext4" {
		return nil, fmt.Errorf("%s: version %d, format %q; this driver knows versions 1 to %d of ext4", dir, r.V, r.Format, imageVersion)
	}
	_, err := os.Stat(r.file)
	return r, err
}

func loadManifest(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// initrds makes one initramfs for each agent and kernel, and keeps it.
type initrds struct{ mu sync.Mutex }

// open gives the initramfs with this agent as the init, open to be read.
func (x *initrds) open(dir string, k *kernelImage, agent *os.File, agentSum string) (*os.File, error) {
	h := sha256.New()
	fmt.Fprintln(h, "initrd 1", agentSum)
	for _, m := range k.Modules {
		fmt.Fprintln(h, m.Name, m.Group, m.SHA256)
	}
	name := filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:16])+".cpio")
	x.mu.Lock()
	defer x.mu.Unlock()
	if f, err := os.Open(name); err == nil {
		return f, nil
	}
	entries, err := bootEntries(k, agent)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := writeWhole(name, 0o644, func(w io.Writer) error { return initrd.Write(w, entries) }); err != nil {
		return nil, err
	}
	return os.Open(name)
}

func bootEntries(k *kernelImage, agent *os.File) ([]initrd.Entry, error) {
	program, err := io.ReadAll(io.NewSectionReader(agent, 0, 1<<30))
	if err != nil {
		return nil, fmt.Errorf("read the cell agent: %w", err)
	}
	if e, err := elf.NewFile(bytes.NewReader(program)); err != nil || e.Machine != elf.EM_X86_64 || e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return nil, plugin.FailedPrecondition("the cell agent is no x86-64 program")
	}
	entries := []initrd.Entry{
		{Name: "airlock", Mode: initrd.Dir | 0o700},
		{Name: "airlock/modules", Mode: initrd.Dir | 0o700},
		{Name: "airlock/init", Mode: initrd.File | 0o755, Data: program},
		{Name: "dev", Mode: initrd.Dir | 0o755},
		{Name: "dev/console", Mode: initrd.Char | 0o600, Major: 5, Minor: 1},
		{Name: "proc", Mode: initrd.Dir | 0o755}, {Name: "sys", Mode: initrd.Dir | 0o755}, {Name: "mnt", Mode: initrd.Dir | 0o755},
	}
	for i, m := range k.Modules {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(k.file), m.File))
		if err != nil {
			return nil, plugin.FailedPrecondition("kernel module: %v", err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != m.SHA256 {
			return nil, plugin.FailedPrecondition("kernel module %s is not the one of kernel.json", m.File)
		}
		entries = append(entries, initrd.Entry{Name: fmt.Sprintf("airlock/modules/%02d.%s.%s.ko", i, m.Group, m.Name), Mode: initrd.File | 0o600, Data: b})
	}
	return entries, nil
}

// writeWhole writes a file so that a reader sees all of it or none.
func writeWhole(name string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "new-")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
