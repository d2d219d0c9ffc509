// Package initrd makes the initramfs of a VM: the cell agent as its init, and
// the kernel modules that it loads. It imports the standard library only. The
// one idea: a cpio archive is simple enough to be written here, so that no tool
// of the machine has a part in what runs as init.
package initrd

import (
	"bytes"
	"fmt"
	"io"
)

// Entry is a file, a directory or a device of an archive.
type Entry struct {
	Name string // without a leading slash
	Mode uint32 // type and permissions, as in stat
	Data []byte
	// Major and Minor are a device's numbers.
	Major, Minor uint32
}

// File types of Entry.Mode.
const (
	Dir  = 0o040000
	File = 0o100000
	Char = 0o020000
)

// Write writes a cpio archive in the format that the kernel reads ("newc").
// Every entry belongs to root and has no time, so that the same entries make
// the same archive.
func Write(w io.Writer, entries []Entry) error {
	c := &counter{w: w}
	for i, e := range entries {
		if err := c.entry(uint32(i+1), e); err != nil {
			return fmt.Errorf("initramfs: %s: %w", e.Name, err)
		}
	}
	if err := c.entry(0, Entry{Name: "TRAILER!!!"}); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) write(b []byte) error {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return err
}

func (c *counter) pad() error {
	return c.write(make([]byte, -c.n&3))
}

func (c *counter) entry(inode uint32, e Entry) error {
	links := uint32(1)
	if e.Mode&Dir != 0 && e.Mode&File != File {
		links = 2
	}
	var b bytes.Buffer
	b.WriteString("070701")
	for _, v := range []uint32{inode, e.Mode, 0, 0, links, 0, uint32(len(e.Data)), 0, 0, e.Major, e.Minor, uint32(len(e.Name) + 1), 0} {
		fmt.Fprintf(&b, "%08X", v)
	}
	b.WriteString(e.Name)
	b.WriteByte(0)
	if err := c.write(b.Bytes()); err != nil {
		return err
	}
	if err := c.pad(); err != nil {
		return err
	}
	if err := c.write(e.Data); err != nil {
		return err
	}
	return c.pad()
}
