package cellagent

import (
	"errors"
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// plumbing is what a session's process reads from and writes to.
type plumbing struct {
	child   [3]int
	in      *os.File   // the agent's end of its input
	outputs []*os.File // and of its outputs: standard output, standard error
	term    *os.File   // both, when it is a terminal
	tty     uint64     // and that terminal's device number
}

func (p *plumbing) closeChild() {
	closed := -1
	for _, fd := range p.child {
		if fd != closed {
			_ = unix.Close(fd)
		}
		closed = fd
	}
}

func (p *plumbing) close() {
	p.closeChild()
	_ = p.in.Close()
	for _, f := range p.outputs {
		_ = f.Close()
	}
}

// openPipes makes three pipes. The workload's ends block, as programs expect;
// the agent's are in the poller, so that no goroutine holds a thread.
func openPipes() (*plumbing, error) {
	var fds [][2]int
	for range 3 {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			for _, q := range fds {
				_, _ = unix.Close(q[0]), unix.Close(q[1])
			}
			return nil, fmt.Errorf("pipe: %w", err)
		}
		fds = append(fds, p)
	}
	own := func(fd int, name string) *os.File {
		_ = unix.SetNonblock(fd, true)
		return os.NewFile(uintptr(fd), name)
	}
	return &plumbing{
		child:   [3]int{fds[0][0], fds[1][1], fds[2][1]},
		in:      own(fds[0][1], "stdin"),
		outputs: []*os.File{own(fds[1][0], "stdout"), own(fds[2][0], "stderr")},
	}, nil
}

// openTerminal makes a terminal of the given size, owned by the workload.
func openTerminal(size *cellv1.TerminalSize, sp *spawn) (*plumbing, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	defer master.Close()
	defer slave.Close()
	if sp.otherUID() {
		// Programs that open the terminal by name need it; others do not.
		_ = slave.Chown(int(sp.uid), -1)
	}
	m, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	// pty leaves its files in blocking mode; this one goes into the poller.
	_ = unix.SetNonblock(m, true)
	term := os.NewFile(uintptr(m), "terminal")
	fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = setSize(term, size)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		_ = term.Close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return &plumbing{child: [3]int{fd, fd, fd}, in: term, outputs: []*os.File{term}, term: term, tty: st.Rdev}, nil
}

// setSize sets a terminal's size; 0 means the usual.
func setSize(term *os.File, size *cellv1.TerminalSize) error {
	ws := unix.Winsize{Col: clamp16(size.GetCols(), 80), Row: clamp16(size.GetRows(), 24)}
	return control(term, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &ws) })
}

func clamp16(v uint32, usual uint16) uint16 {
	if v == 0 {
		return usual
	}
	return uint16(min(v, 0xffff))
}

// isClosedFile says whether an error means that the other end, or the file, is
// gone.
func isClosedFile(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EBADF)
}
