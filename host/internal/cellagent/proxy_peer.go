package cellagent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// caller finds the process at the other end of a connection and checks that it
// belongs to the session: to its own process with mainOnly, else to anything
// that it has started. A process that cannot be found is refused.
func (s *session) caller(c net.Conn, mainOnly bool) (proc, error) {
	var p proc
	var err error
	switch c := c.(type) {
	case *net.UnixConn:
		p, err = unixPeer(c)
	case *net.TCPConn:
		p, err = s.tcpPeer(c, mainOnly)
	default:
		err = fmt.Errorf("%T has no peer", c)
	}
	if err != nil {
		return proc{}, err
	}
	switch main := s.isMain(p); {
	case main:
		return p, nil
	case mainOnly:
		return proc{}, fmt.Errorf("pid %d is not the session's own process", p.pid)
	}
	if !s.isOurs(p.pid) {
		return proc{}, fmt.Errorf("pid %d does not belong to the session", p.pid)
	}
	return p, nil
}

// isMain says whether p is the session's own process. Not reaped, its pid is
// still its own.
func (s *session) isMain(p proc) bool {
	return p.pid == int(s.pid.Load()) && p.ppid == os.Getpid() && s.running()
}

// isOurs says whether a process descends from the session, found from it up to
// the child of the agent that it hangs below.
func (s *session) isOurs(pid int) bool {
	live, own := s.agent.live(), os.Getpid()
	for range 1024 {
		p, ok := readProc(pid)
		if !ok || p.ppid <= 0 {
			return false
		}
		if p.ppid == own {
			return attribute(p, live) == s
		}
		pid = p.ppid
	}
	return false
}

func unixPeer(c *net.UnixConn) (proc, error) {
	cred, err := peerOf(c)
	if err != nil {
		return proc{}, err
	}
	p, ok := readProc(int(cred.Pid))
	if !ok {
		return proc{}, errors.New("the calling process is gone")
	}
	return p, nil
}

// tcpPeer finds who has the other end of a loopback connection: the kernel
// says which socket it is, and the descriptors of the session's processes say
// which of them holds it.
func (s *session) tcpPeer(c *net.TCPConn, mainOnly bool) (proc, error) {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	here, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return proc{}, errors.New("no address")
	}
	inode, uid, err := socketOf(peer.AddrPort(), here.AddrPort())
	if err != nil {
		return proc{}, err
	}
	if own := uint32(os.Geteuid()); uid != s.uid && (s.uid != 0 || uid != own) {
		return proc{}, fmt.Errorf("uid %d is not the session's", uid)
	}
	found := proc{}
	asWorkload(s.uid, s.ownGroup(), func() {
		main := int(s.pid.Load())
		if holds(main, inode) {
			found, _ = readProc(main)
			return
		}
		if mainOnly {
			return
		}
		for _, p := range s.agent.processesOf(map[*session]bool{s: true}) {
			if p.pid != main && holds(p.pid, inode) {
				found = p
				return
			}
		}
	})
	if found.pid == 0 {
		return proc{}, errors.New("no process that may use it has this connection")
	}
	return found, nil
}

// socketOf looks a connection up in the kernel's table, as seen from its far
// end.
func socketOf(peer, here netip.AddrPort) (inode uint64, uid uint32, err error) {
	for _, t := range []struct {
		file string
		form func(netip.AddrPort) string
	}{{"/proc/self/net/tcp", tableV4}, {"/proc/self/net/tcp6", tableV6}} {
		f, err := os.Open(t.file)
		if err != nil {
			continue
		}
		inode, uid = findSocket(f, t.form(peer), t.form(here))
		_ = f.Close()
		if inode != 0 {
			return inode, uid, nil
		}
	}
	return 0, 0, errors.New("the kernel does not list this connection")
}

func findSocket(f *os.File, local, remote string) (inode uint64, uid uint32) {
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local rem st queues timer retrnsmt uid timeout inode …
		v := strings.Fields(lines.Text())
		if len(v) < 10 || v[1] != local || v[2] != remote {
			continue
		}
		n, err := strconv.ParseUint(v[9], 10, 64)
		u, err2 := strconv.ParseUint(v[7], 10, 32)
		if err == nil && err2 == nil && n != 0 {
			return n, uint32(u)
		}
	}
	return 0, 0
}

// tableV4 and tableV6 are addresses as the kernel's tables write them: words
// in the machine's byte order.
func tableV4(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), a.Port())
}

func tableV6(a netip.AddrPort) string {
	b := a.Addr().As16() // an IPv4 address in its mapped form
	var out strings.Builder
	for i := 0; i < len(b); i += 4 {
		fmt.Fprintf(&out, "%08X", binary.NativeEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("%s:%04X", out.String(), a.Port())
}

// holds says whether a process has a descriptor of a socket.
func holds(pid int, inode uint64) bool {
	want := "socket:[" + strconv.FormatUint(inode, 10) + "]"
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(256)
		for _, n := range names {
			if l, err := os.Readlink(dir + "/" + n); err == nil && l == want {
				return true
			}
		}
		if err != nil || len(names) == 0 {
			return false
		}
	}
}

// asWorkload runs do with the workload's ids for access to files. The agent has
// no CAP_SYS_PTRACE, so it may read the descriptors of the workload's
// processes only as the workload. They belong to one thread and end with do.
func asWorkload(uid, gid uint32, do func()) {
	if uid == 0 || int(uid) == os.Geteuid() {
		do()
		return
	}
	runtime.LockOSThread()
	defer undumpable() // the kernel sets that to what fs.suid_dumpable says
	_, _ = unix.SetfsgidRetGid(int(gid))
	_, _ = unix.SetfsuidRetUid(int(uid))
	undumpable()
	do()
	_, _ = unix.SetfsuidRetUid(os.Geteuid())
	_, _ = unix.SetfsgidRetGid(os.Getegid())
	if id, _ := unix.SetfsuidRetUid(-1); id == os.Geteuid() {
		runtime.UnlockOSThread()
	} // else the thread is not fit for anything else, and ends with its goroutine
}
