package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Version is the version of both manifests. A reader takes every version up to
// its own.
const Version = 1

// Names in an image's directory.
const (
	KernelManifest = "kernel.json"
	RootManifest   = "root.json"
	VMLinux        = "vmlinux"
	RootDisk       = "root.ext4"
	modulesDir     = "modules"
)

// Kernel is kernel.json.
type Kernel struct {
	V       int    `json:"v"`
	Release string `json:"release"` // as uname -r would say
	SHA256  string `json:"sha256"`  // of vmlinux
	// Modules in the order in which they have to be loaded.
	Modules []Module `json:"modules"`
}

// Module is a kernel module that lies beside the kernel.
type Module struct {
	Name   string `json:"name"`
	File   string `json:"file"` // relative to the kernel's directory
	SHA256 string `json:"sha256"`
	// Group says when it is needed: "base" always, "share" for directories that
	// are shared with the guest, "net" for a network card.
	Group string `json:"group"`
}

// Root is root.json.
type Root struct {
	V      int    `json:"v"`
	Format string `json:"format"` // "ext4"
	SHA256 string `json:"sha256"` // of root.ext4
	Bytes  int64  `json:"bytes"`
	Source string `json:"source"` // "directory", "tar", "docker-archive" or "oci-layout"
	// Entrypoint, Env and User are what a container image says of itself, for
	// people who look at it; the driver uses none of it.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Env        []string `json:"env,omitempty"`
	User       string   `json:"user,omitempty"`
}

// writeJSON writes a manifest so that a reader sees the old one or the new one.
func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	next := file + ".new"
	err = os.WriteFile(next, append(b, '\n'), 0o644)
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		_ = os.Remove(next)
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

func sumFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// copyTo writes a file whole.
func copyTo(name string, r io.Reader, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
