package cellagent

import (
	"context"
	"net"
	"sync"

	"github.com/hashicorp/yamux"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// links knows the one connection to the host that counts.
type links struct {
	mu      sync.Mutex
	current *link
	serial  uint64
	changed chan struct{} // closed when current changes
	closed  bool
	ending  sync.WaitGroup
}

func newLinks() *links { return &links{changed: make(chan struct{})} }

// set makes l the connection, and closes the one before.
func (ls *links) set(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		ls.ending.Go(l.close)
		return
	}
	if old := ls.current; old != nil {
		ls.ending.Go(old.close) // it may have to wait for its readers
	}
	ls.current = l
	ls.serial++
	close(ls.changed)
	ls.changed = make(chan struct{})
}

// gone says that a connection has ended.
func (ls *links) gone(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.current == l {
		ls.current = nil
	}
}

// event sends to the host, if it is there. What the host must not miss is in
// the hello of the next connection too.
func (ls *links) event(f *cellv1.AgentFrame) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.current != nil {
		ls.current.send(f)
	}
}

// connection is the serial number of the present connection; 0 = none.
func (ls *links) connection() uint64 {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.current == nil {
		return 0
	}
	return ls.serial
}

// wait returns the connection, and waits for one while there is none.
func (ls *links) wait(ctx context.Context) (*link, error) {
	for {
		ls.mu.Lock()
		l, changed, closed := ls.current, ls.changed, ls.closed
		ls.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case l != nil:
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends all connections for good.
func (ls *links) close() {
	ls.mu.Lock()
	if !ls.closed {
		ls.closed = true
		close(ls.changed)
		if ls.current != nil {
			ls.ending.Go(ls.current.close)
		}
	}
	ls.mu.Unlock()
	ls.ending.Wait()
}

// link is one proven connection to the host.
type link struct {
	mux     *yamux.Session
	control net.Conn
	helloID uint64

	mu    sync.Mutex
	queue []*cellv1.AgentFrame
	more  chan struct{}
}

// maxFrames is how many frames may wait for a host that does not read. Replies
// are bounded by what the host asks; a Waiting beyond it is not sent.
const maxFrames = 4096

func newLink(mux *yamux.Session, control net.Conn) *link {
	return &link{mux: mux, control: control, more: make(chan struct{}, 1)}
}

// reply queues an answer; send queues an event.
func (l *link) reply(f *cellv1.AgentFrame) { l.send(f) }

func (l *link) send(f *cellv1.AgentFrame) {
	l.mu.Lock()
	if len(l.queue) < maxFrames || f.GetWaiting() == nil {
		l.queue = append(l.queue, f)
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// write sends what is queued until the connection ends.
func (l *link) write() {
	enc := cell.NewEncoder(l.control)
	for {
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, f := range batch {
			if err := enc.Encode(f); err != nil {
				_ = l.mux.Close()
				return
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-l.more:
		case <-l.mux.CloseChan():
			return
		}
	}
}

func (l *link) close() { _ = l.mux.Close() }
