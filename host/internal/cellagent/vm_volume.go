package cellagent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A volume is a directory of the host. The guest's kernel speaks FUSE to
// /dev/fuse; this relay carries its messages over a port, unchanged, to a file
// server at the host. The server may go away and come back: it begins every
// connection with a hello, which the relay gives back, so that both know where
// the messages begin.
const (
	volumeHello = "ALVOL\x00\x00\x01" // then eight bytes of the server's choice
	helloSize   = 16
	fuseHeader  = 40 // of a request
	fuseOut     = 16 // of an answer
	// fuseBuffer holds the largest request: a write of 128 KiB.
	fuseBuffer  = 256 << 10
	opForget    = 2
	opInterrupt = 36
	opForgets   = 42
)

type volume struct {
	port *vmPort
	dev  *os.File

	out     sync.Mutex // held over a write to the port, by nobody who reads it
	mu      sync.Mutex
	changed *sync.Cond
	ready   bool // a server is there
	held    bool // nothing new is sent
	waiting map[uint64]struct{}
}

// mountVolume mounts a volume and serves it for good.
func mountVolume(v vmVolume, root string) (*volume, error) {
	port, err := findPort(v.Port)
	if err != nil {
		return nil, err
	}
	// Reads of it block a thread: before the mount there is nothing that the
	// poller could wait for, and it would not notice the mount.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if v.ReadOnly {
		flags |= unix.MS_RDONLY // the server refuses writes all the same
	}
	target := root + v.Target
	if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, err
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=131072", fd)
	vol := &volume{port: port, dev: dev, waiting: map[uint64]struct{}{}}
	vol.changed = sync.NewCond(&vol.mu)
	go vol.requests()
	go vol.answers()
	if err := unix.Mount("airlock", target, "fuse", flags, opts); err != nil {
		return nil, fmt.Errorf("mount %s: %w", v.Target, err)
	}
	return vol, nil
}

// requests carries what the kernel asks to the host.
func (v *volume) requests() {
	buf := make([]byte, fuseBuffer)
	for {
		n, err := v.dev.Read(buf)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR): // the one who asked has given up
			continue
		case errors.Is(err, unix.EPERM): // not mounted yet
			time.Sleep(time.Millisecond)
			continue
		case err != nil || n < fuseHeader:
			return // unmounted
		}
		v.send(buf[:n])
	}
}

func (v *volume) send(msg []byte) {
	op, unique := binary.LittleEndian.Uint32(msg[4:]), binary.LittleEndian.Uint64(msg[8:])
	for {
		v.mu.Lock()
		for !v.ready || v.held {
			v.changed.Wait()
		}
		if op != opForget && op != opForgets && op != opInterrupt { // which have no answer
			v.waiting[unique] = struct{}{}
		}
		v.mu.Unlock()
		v.out.Lock()
		_, err := v.port.Write(msg)
		v.out.Unlock()
		if err == nil {
			return
		}
		// What went out of it belongs to a connection that is over.
		v.mu.Lock()
		delete(v.waiting, unique)
		v.ready = false
		v.mu.Unlock()
	}
}

// answers carries what the host answers to the kernel.
func (v *volume) answers() {
	br := bufio.NewReaderSize(v.port, fuseBuffer)
	for {
		err := v.session(br)
		v.mu.Lock()
		v.failAll()
		v.mu.Unlock()
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
	}
}

// session carries answers until the server goes. A server that took another
// one's place unseen, after a restore for example, shows by its hello.
func (v *volume) session(br *bufio.Reader) error {
	head := make([]byte, helloSize)
	for buf := make([]byte, fuseBuffer); ; {
		if _, err := io.ReadFull(br, head); err != nil {
			return err
		}
		for n := answerSize(head); n == 0; n = answerSize(head) {
			if string(head[:len(volumeHello)]) == volumeHello {
				break
			}
			// Nonsense, what an earlier connection has left: until the next hello.
			copy(head, head[1:])
			c, err := br.ReadByte()
			if err != nil {
				return err
			}
			head[helloSize-1] = c
		}
		n := answerSize(head)
		if n == 0 {
			v.begin(head)
			continue
		}
		copy(buf, head)
		if _, err := io.ReadFull(br, buf[fuseOut:n]); err != nil {
			return err
		}
		unique := binary.LittleEndian.Uint64(buf[8:])
		v.mu.Lock()
		if _, ok := v.waiting[unique]; ok && v.ready {
			delete(v.waiting, unique)
			_, _ = v.dev.Write(buf[:n]) // refused: the one who asked has given up
			v.changed.Broadcast()
		}
		v.mu.Unlock()
	}
}

// answerSize is how long an answer with this head is; 0 = it is none.
func answerSize(head []byte) int {
	n := int(binary.LittleEndian.Uint32(head))
	code := int32(binary.LittleEndian.Uint32(head[4:]))
	if n < fuseOut || n > fuseBuffer || code > 0 || code < -4095 {
		return 0
	}
	return n
}

// begin greets a new server; what an earlier one was asked has no answer.
func (v *volume) begin(hello []byte) {
	v.mu.Lock()
	v.failAll()
	v.mu.Unlock()
	v.out.Lock()
	_, err := v.port.Write(hello)
	v.out.Unlock()
	v.mu.Lock()
	v.ready = err == nil
	v.changed.Broadcast()
	v.mu.Unlock()
}

// failAll answers everything that is under way. v.mu is held.
func (v *volume) failAll() {
	v.ready = false
	for unique := range v.waiting {
		v.fail(unique)
	}
	clear(v.waiting)
	v.changed.Broadcast()
}

// fail answers a request whose answer will not come.
func (v *volume) fail(unique uint64) {
	out := make([]byte, fuseOut)
	eio := int32(-int(unix.EIO))
	binary.LittleEndian.PutUint32(out, fuseOut)
	binary.LittleEndian.PutUint32(out[4:], uint32(eio))
	binary.LittleEndian.PutUint64(out[8:], unique)
	_, _ = v.dev.Write(out)
}

// hold sends nothing more, and returns when everything that was sent is
// answered; or not, and lets go on.
func (v *volume) hold(within time.Duration) error {
	late := false
	timer := time.AfterFunc(within, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		late = true
		v.changed.Broadcast()
	})
	defer timer.Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = true
	for len(v.waiting) > 0 && !late {
		v.changed.Wait()
	}
	if len(v.waiting) > 0 {
		v.held = false
		v.changed.Broadcast()
		return fmt.Errorf("%d file operations are not answered", len(v.waiting))
	}
	return nil
}

func (v *volume) unhold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = false
	v.changed.Broadcast()
}
