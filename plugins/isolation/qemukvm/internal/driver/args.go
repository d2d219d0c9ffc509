package driver

import (
	"fmt"
	"os"
	"strconv"
)

// firstFD is the first descriptor that a process gets beside the standard ones.
const firstFD = 3

// line is QEMU's command line and the descriptors that it names. Everything
// that QEMU uses comes as a descriptor: it can open none of it by itself.
type line struct {
	args  []string
	files []*os.File
}

func (l *line) add(args ...string) { l.args = append(l.args, args...) }

// pass hands a file over and gives its number in QEMU.
func (l *line) pass(f *os.File) int {
	l.files = append(l.files, f)
	return firstFD + len(l.files) - 1
}

// byPath is how QEMU opens a passed file where it takes only a path.
func byPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// parts are the files of a VM.
type parts struct {
	kernel, initrd, root, upper *os.File
	ctl, qmp                    *os.File   // listening sockets
	links                       []*os.File // likewise, one for each connection to the agent
	volumes                     []*os.File
	incoming                    *os.File // the state to restore; nil = boot
}

// tuned makes an emulated kernel boot faster. Guests' mitigations stay on under
// KVM.
const tuned = " mitigations=off cryptomgr.notests no_timer_check noreplace-smp tsc=reliable"

// commandLine is the one line that every VM is started with.
func commandLine(e *engine, c choice, s size, id string, p parts) *line {
	l := &line{}
	cpu, kernel := "host", "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/airlock/init random.trust_cpu=on"
	accel := "kvm"
	if c.accel == accelTCG {
		// With fewer features than max, programs built for real machines die.
		cpu, accel = "max", "tcg,tb-size=64"
		kernel += tuned
	}
	mem := strconv.FormatUint(s.Memory>>20, 10) + "M"
	l.add("-name", "airlock-"+id+",debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", e.machine+",usb=off,vmport=off,dump-guest-core=off,memory-backend=mem", "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(s.CPUs), "-m", mem, "-object", "memory-backend-memfd,id=mem,share=on,size="+mem,
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
	l.add("-kernel", byPath(l.pass(p.kernel)), "-initrd", byPath(l.pass(p.initrd)), "-append", kernel+" -- vm share")
	// What the guest's kernel says is kept in memory, and only its end.
	l.add("-chardev", "ringbuf,id=console,size=16384", "-serial", "chardev:console")
	for i, d := range []struct {
		name     string
		f        *os.File
		readOnly string
	}{{"root", p.root, "on"}, {"upper", p.upper, "off"}} {
		l.add("-add-fd", fmt.Sprintf("fd=%d,set=%d", l.pass(d.f), i+1),
			"-blockdev", fmt.Sprintf("driver=raw,node-name=%s,read-only=%s,cache.no-flush=on,file.driver=file,file.filename=/dev/fdset/%d,file.locking=off",
				d.name, d.readOnly, i+1),
			"-device", "virtio-blk-pci,drive="+d.name+",serial="+d.name)
	}
	l.add("-device", "virtio-serial-pci,id=ports,max_ports=31")
	l.port(p.ctl, "ctl", "airlock.ctl", 1)
	for i, f := range p.links {
		name := "link" + strconv.Itoa(i)
		l.port(f, name, "airlock."+name, 2+i)
	}
	for i, v := range p.volumes {
		name := "vol" + strconv.Itoa(i)
		l.port(v, name, volumePort(i), 2+len(p.links)+i)
	}
	l.add("-chardev", listening(l.pass(p.qmp), "qmp"), "-mon", "chardev=qmp,mode=control")
	if p.incoming == nil {
		// A kernel that panics as it boots leaves its last words to be read; boot
		// sets it back.
		l.add("-action", "shutdown=pause")
	} else {
		l.add("-S", "-incoming", "fd:"+strconv.Itoa(l.pass(p.incoming)))
	}
	return l
}

func volumePort(i int) string { return "airlock.vol" + strconv.Itoa(i) }

func listening(fd int, id string) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

func (l *line) port(listener *os.File, id, name string, nr int) {
	l.add("-chardev", listening(l.pass(listener), id),
		"-device", fmt.Sprintf("virtserialport,bus=ports.0,nr=%d,chardev=%s,name=%s", nr, id, name))
}
