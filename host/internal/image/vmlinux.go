package image

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxKernel bounds an unpacked kernel.
const maxKernel = 256 << 20

// pvhEntry is the type of the "Xen" ELF note that says where a kernel is
// entered without firmware and boot loader.
const pvhEntry = 18

// vmlinux takes the uncompressed kernel out of what a distribution ships, which
// may be that already, and sees that QEMU can boot it directly.
func vmlinux(image []byte) ([]byte, error) {
	out := image
	if !bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		packed, err := payload(image)
		if err != nil {
			return nil, err
		}
		if out, err = unpack(packed); err != nil {
			return nil, err
		}
	}
	f, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("the unpacked kernel: %w", err)
	}
	if f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("the kernel is for %v; this driver boots x86-64", f.Machine)
	}
	if !hasPVH(f) {
		return nil, errors.New("the kernel has no PVH entry (CONFIG_PVH)")
	}
	return out, nil
}

// payload finds the compressed kernel in a bzImage by its header.
func payload(b []byte) ([]byte, error) {
	const setupSects, magic, version, offset, length = 0x1f1, 0x202, 0x206, 0x248, 0x24c
	if len(b) < length+4 || string(b[magic:magic+4]) != "HdrS" {
		return nil, errors.New("neither an ELF file nor an x86 kernel image")
	}
	if v := binary.LittleEndian.Uint16(b[version:]); v < 0x208 {
		return nil, fmt.Errorf("a kernel image of boot protocol %#x; 0x208 or newer is needed", v)
	}
	sects := int(b[setupSects])
	if sects == 0 {
		sects = 4
	}
	from := (sects+1)*512 + int(binary.LittleEndian.Uint32(b[offset:]))
	n := int(binary.LittleEndian.Uint32(b[length:]))
	if from < 0 || n < 4 || from+n > len(b) {
		return nil, errors.New("the kernel image is cut off")
	}
	return b[from : from+n], nil
}

func unpack(b []byte) ([]byte, error) {
	switch {
	case binary.LittleEndian.Uint32(b) == lz4Legacy:
		return unlz4(b, maxKernel)
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("unpack the kernel: %w", err)
		}
		z.Multistream(false)
		out, err := io.ReadAll(io.LimitReader(z, maxKernel))
		if err != nil {
			return nil, fmt.Errorf("unpack the kernel: %w", err)
		}
		return out, nil
	case bytes.HasPrefix(b, []byte(elf.ELFMAG)):
		return b, nil
	}
	return nil, errors.New("the kernel is packed with neither LZ4 nor gzip; take Debian's cloud kernel, " +
		"or unpack it with the kernel's scripts/extract-vmlinux and give the result")
}

func hasPVH(f *elf.File) bool {
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(p.Open(), 1<<20))
		if err != nil {
			continue
		}
		for len(b) >= 12 {
			name, desc := pad4(binary.LittleEndian.Uint32(b)), pad4(binary.LittleEndian.Uint32(b[4:]))
			kind := binary.LittleEndian.Uint32(b[8:])
			if b = b[12:]; name+desc > len(b) || name < 0 || desc < 0 {
				break
			}
			if kind == pvhEntry && bytes.HasPrefix(b, []byte("Xen\x00")) {
				return true
			}
			b = b[name+desc:]
		}
	}
	return false
}

func pad4(n uint32) int { return int((uint64(n) + 3) &^ 3) }
