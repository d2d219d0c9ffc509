package cellagent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// renew sets the clock and feeds the kernel's random numbers. After a restore
// both are those of the moment the VM was saved at, and every VM that was
// restored from it would draw the same numbers.
func renew(r *vmReset) error {
	ts := unix.NsecToTimespec(r.Now)
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if len(r.Entropy) < 32 {
		return errors.New("less than 32 bytes of entropy")
	}
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// struct rand_pool_info: bits, bytes, the bytes.
	pool := make([]byte, 8+len(r.Entropy))
	binary.LittleEndian.PutUint32(pool, uint32(len(r.Entropy)*8))
	binary.LittleEndian.PutUint32(pool[4:], uint32(len(r.Entropy)))
	copy(pool[8:], r.Entropy)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool[0]))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	// Else the generator goes on with its old key for up to a minute.
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndReseed, 0); errno != 0 {
		return fmt.Errorf("reseed the random numbers: %w", errno)
	}
	return nil
}

// rndReseed is RNDRESEEDCRNG of linux/random.h.
const rndReseed = 0x5207

func loopback() error { return interfaceUp("lo") }

func interfaceUp(name string) error {
	return withInterface(name, func(fd int, r *unix.Ifreq) error {
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
			return err
		}
		r.SetUint16(r.Uint16() | unix.IFF_UP)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	})
}

func withInterface(name string, f func(fd int, r *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	return f(fd, r)
}

// configureNetwork gives the one network card its address.
func configureNetwork(n *vmNetwork) error {
	const card = "eth0"
	prefix, err := netip.ParsePrefix(n.Address)
	if err != nil {
		return err
	}
	gateway, err := netip.ParseAddr(n.Gateway)
	if err != nil {
		return err
	}
	if _, err := await(func() (os.FileInfo, error) { return os.Stat("/sys/class/net/" + card) }); err != nil {
		return err
	}
	addr, mask := prefix.Addr().As4(), [4]byte{}
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-prefix.Bits()))
	if err := setAddress(card, unix.SIOCSIFADDR, addr); err != nil {
		return err
	}
	if err := setAddress(card, unix.SIOCSIFNETMASK, mask); err != nil {
		return err
	}
	if err := interfaceUp(card); err != nil {
		return err
	}
	if err := defaultRoute(gateway.As4()); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	_ = os.Remove("/etc/resolv.conf")
	return os.WriteFile("/etc/resolv.conf", []byte("nameserver "+n.DNS+"\n"), 0o644)
}

func setAddress(card string, req uint, ip [4]byte) error {
	return withInterface(card, func(fd int, r *unix.Ifreq) error {
		if err := r.SetInet4Addr(ip[:]); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, req, r)
	})
}

// rtentry is struct rtentry of a 64-bit kernel.
type rtentry struct {
	_             uint64
	dst, gw, mask unix.RawSockaddrInet4
	flags         uint16
	_             [110]byte
}

func defaultRoute(gateway [4]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	any := unix.RawSockaddrInet4{Family: unix.AF_INET}
	r := rtentry{dst: any, mask: any, gw: unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: gateway}, flags: unix.RTF_UP | unix.RTF_GATEWAY}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return errno
	}
	return nil
}
