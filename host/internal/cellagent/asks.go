package cellagent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

const (
	maxAsks     = 256      // open questions
	maxAnswered = 1024     // answered ones that are remembered
	maxPrompt   = 64 << 10 // bytes of a question, and of its context
	// confirmTime is how long an asker may take to say that it has its answer.
	confirmTime = 10 * time.Second
)

// asks are the questions that processes of the cell put to a human. Each is a
// connection to the ask socket: the asker sends Ask, gets AskAnswer when there
// is one, confirms it with one byte, and has withdrawn when it is gone before.
// With no host, it waits.
type asks struct {
	agent    *Agent
	listener *net.UnixListener

	mu       sync.Mutex
	list     []*ask
	answered []string
}

type ask struct {
	msg    *cellv1.Ask
	answer chan *cellv1.AskAnswer // the first answer
	done   chan struct{}
	err    error // valid when done
}

func newAsks(a *Agent) (*asks, error) {
	l, err := cell.ListenUnix(a.public.askSocket())
	if err != nil {
		return nil, fmt.Errorf("ask socket: %w", err)
	}
	// Every uid may connect; who it is, is asked of the kernel.
	if err := os.Chmod(a.public.askSocket(), 0o666); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("ask socket: %w", err)
	}
	return &asks{agent: a, listener: l}, nil
}

// serve takes askers until the socket is closed.
func (q *asks) serve(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxAsks)
	for {
		c, err := q.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			if err := q.handle(c); err != nil {
				_ = cell.NewEncoder(c).Encode(&cellv1.AskAnswer{Error: err.Error()})
			}
		})
	}
}

func (q *asks) close() { _ = q.listener.Close() }

// handle serves one asker. An error is told to it.
func (q *asks) handle(c *net.UnixConn) error {
	_ = c.SetReadDeadline(time.Now().Add(confirmTime))
	m := new(cellv1.Ask)
	if err := cell.NewDecoder(io.LimitReader(c, 3*maxPrompt)).Decode(m); err != nil {
		return errors.New("a question that cannot be read, or is too long")
	}
	_ = c.SetReadDeadline(time.Time{})
	peer, err := peerOf(c)
	if err != nil {
		return err
	}
	session, ok := q.agent.sessionOf(int(peer.Pid), peer.Uid)
	if !ok {
		return errors.New("this uid runs no session of the cell")
	}
	if m.GetPrompt() == "" || len(m.GetPrompt()) > maxPrompt || len(m.GetContext()) > maxPrompt {
		return fmt.Errorf("a question has 1 to %d bytes, its context not more", maxPrompt)
	}
	k := &ask{
		msg:    &cellv1.Ask{AskId: newAskID(), Prompt: m.GetPrompt(), Context: m.GetContext(), SessionId: session},
		answer: make(chan *cellv1.AskAnswer, 1), done: make(chan struct{}),
	}
	q.agent.announce(func() *cellv1.AgentFrame {
		q.add(k)
		return &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_Ask{Ask: k.msg}}
	})
	err = deliver(c, k)
	q.agent.announce(func() *cellv1.AgentFrame {
		q.remove(k, err == nil)
		if err == nil {
			return nil
		}
		return &cellv1.AgentFrame{Frame: &cellv1.AgentFrame_AskWithdrawn{AskWithdrawn: &cellv1.AskWithdrawn{AskId: k.msg.GetAskId()}}}
	})
	k.err = err
	close(k.done)
	return nil
}

// deliver waits for the answer and brings it to the asker.
func deliver(c *net.UnixConn, k *ask) error {
	confirmed := make(chan bool, 1)
	go func() { // reads the confirmation, or the asker's end
		_, err := c.Read(make([]byte, 1))
		confirmed <- err == nil
	}()
	gone := refuse(cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, "the asking process is gone")
	select {
	case <-confirmed: // nothing was there to confirm
		return gone
	case an := <-k.answer:
		_ = c.SetDeadline(time.Now().Add(confirmTime))
		if err := cell.NewEncoder(c).Encode(&cellv1.AskAnswer{Text: an.GetText(), Error: an.GetError()}); err != nil {
			return gone
		}
		if !<-confirmed {
			return gone
		}
		return nil
	}
}

// answer brings an answer to the asking process and returns when it has it.
// The first one counts.
func (q *asks) answer(an *cellv1.AskAnswer) error {
	q.mu.Lock()
	if slices.Contains(q.answered, an.GetAskId()) {
		q.mu.Unlock()
		return nil
	}
	i := slices.IndexFunc(q.list, func(k *ask) bool { return k.msg.GetAskId() == an.GetAskId() })
	if i < 0 {
		q.mu.Unlock()
		return refuse(cellv1.ErrorCode_ERROR_CODE_NOT_FOUND, "no such question")
	}
	k := q.list[i]
	q.mu.Unlock()
	select {
	case k.answer <- an:
	default:
	}
	<-k.done
	return k.err
}

func (q *asks) add(k *ask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, k)
}

func (q *asks) remove(k *ask, answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.DeleteFunc(q.list, func(o *ask) bool { return o == k })
	if answered {
		if len(q.answered) == maxAnswered {
			q.answered = slices.Delete(q.answered, 0, 1)
		}
		q.answered = append(q.answered, k.msg.GetAskId())
	}
}

// open lists the questions that wait.
func (q *asks) open() []*cellv1.Ask {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*cellv1.Ask
	for _, k := range q.list {
		out = append(out, k.msg)
	}
	return out
}

func newAskID() string {
	var b [12]byte
	rand.Read(b[:])
	return "ask-" + hex.EncodeToString(b[:])
}

func peerOf(c *net.UnixConn) (*unix.Ucred, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var inner error
	err = rc.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, inner)
}

// sessionOf finds the session that a process belongs to. ok = its uid runs
// sessions here at all.
func (a *Agent) sessionOf(pid int, uid uint32) (id string, ok bool) {
	live := a.live()
	for _, s := range live {
		ok = ok || s.uid == uid || (s.uid == 0 && uid == uint32(os.Geteuid()))
	}
	if !ok {
		return "", false
	}
	own := os.Getpid()
	for range 1024 {
		p, found := readProc(pid)
		if !found || p.ppid <= 0 {
			return "", true
		}
		if p.ppid == own {
			if s := attribute(p, live); s != nil {
				return s.id, true
			}
			return "", true
		}
		pid = p.ppid
	}
	return "", true
}
