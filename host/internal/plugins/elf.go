package plugins

import (
	"bytes"
	"debug/elf"
	"runtime"
)

// head is the first bytes of a program, enough to know what it is.
type head []byte

func (h head) script() bool { return bytes.HasPrefix(h, []byte("#!")) }

// check says why the kernel of this machine would not run it.
func (h head) check(path string) *Fault {
	switch {
	case len(h) == 0:
		return faultf(NotExecutable, "%s is empty", path).advise("install it again")
	case h.script():
		return nil
	case !bytes.HasPrefix(h, []byte(elf.ELFMAG)) || len(h) < 20:
		return faultf(NotExecutable, "%s is no program: it begins with %q", path, clean(string(h[:min(len(h), 16)]), 64)).
			advise("install the plugin's executable for linux/%s", runtime.GOARCH)
	}
	machine := elf.Machine(uint16(h[18]) | uint16(h[19])<<8)
	if h[elf.EI_DATA] == byte(elf.ELFDATA2MSB) {
		machine = elf.Machine(uint16(h[18])<<8 | uint16(h[19]))
	}
	arch := goarch(machine, elf.Class(h[elf.EI_CLASS]), elf.Data(h[elf.EI_DATA]))
	if arch != runtime.GOARCH {
		return faultf(WrongArch, "%s is built for %s, this host is %s", path, arch, runtime.GOARCH).
			advise("install the plugin's build for linux/%s", runtime.GOARCH)
	}
	return nil
}

// goarch is Go's word for a machine, or ELF's own where Go has none.
func goarch(m elf.Machine, class elf.Class, data elf.Data) string {
	little := data == elf.ELFDATA2LSB
	switch {
	case m == elf.EM_X86_64:
		return "amd64"
	case m == elf.EM_386:
		return "386"
	case m == elf.EM_AARCH64:
		return "arm64"
	case m == elf.EM_ARM:
		return "arm"
	case m == elf.EM_RISCV && class == elf.ELFCLASS64:
		return "riscv64"
	case m == elf.EM_PPC64 && little:
		return "ppc64le"
	case m == elf.EM_S390:
		return "s390x"
	case m == elf.EM_LOONGARCH:
		return "loong64"
	}
	return m.String()
}
