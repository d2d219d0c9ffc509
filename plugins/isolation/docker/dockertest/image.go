package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/moby/moby/client"
)

// Images that Import makes.
const (
	// Busybox has a shell and the usual small programs, /tmp and /etc.
	Busybox = "airlock-test/busybox:1"
	// Scratch has nothing at all but one empty directory, for a tar must hold
	// something.
	Scratch = "airlock-test/scratch:1"
)

const busybox = "/bin/busybox"

// Import makes Busybox and Scratch at the engine. Changes are lines of a
// Dockerfile that both get, for example "USER 1000".
func (e *Engine) Import(changes ...string) error {
	shell, err := ShellTar()
	if err != nil {
		return err
	}
	empty, err := tarOf([]entry{{name: "empty/", mode: 0o755}})
	if err != nil {
		return err
	}
	if err := e.ImportTar(Busybox, shell, changes...); err != nil {
		return err
	}
	return e.ImportTar(Scratch, empty, changes...)
}

// ImportTar makes an image of a root file system.
func (e *Engine) ImportTar(ref string, root []byte, changes ...string) error {
	api, err := e.Client()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), upTime)
	defer cancel()
	r, err := api.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(root), SourceName: "-"}, ref,
		client.ImageImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import %s: %w", ref, err)
	}
	defer r.Close()
	answer, err := io.ReadAll(r)
	if err != nil || bytes.Contains(answer, []byte(`"error"`)) {
		return fmt.Errorf("import %s: %s: %w", ref, answer, err)
	}
	return nil
}

// entry is one entry of a tar: a directory when its name ends with a slash, a
// link when it has a target, else a file.
type entry struct {
	name, link string
	mode       int64
	content    []byte
}

func tarOf(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg, Linkname: e.link}
		switch {
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		case e.link != "":
			h.Typeflag = tar.TypeSymlink
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// ShellTar is a root made of the machine's static busybox.
func ShellTar() ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	entries := []entry{
		{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o1777}, {name: "root/", mode: 0o700},
		{name: "bin/busybox", mode: 0o755, content: program},
		// The machine's busybox may lack it.
		{name: "bin/nohup", mode: 0o755, content: []byte("#!/bin/sh\ntrap '' HUP\nexec \"$@\"\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/bin/sh\n")},
	}
	for _, name := range strings.Fields(string(list)) {
		if name != "busybox" && name != "nohup" {
			entries = append(entries, entry{name: "bin/" + name, link: "busybox", mode: 0o777})
		}
	}
	return tarOf(entries)
}
