package gateway

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// tunnel moves bytes between a cell and an upstream until both directions have
// ended. The end of one is passed on; an error, an idle connection, the total
// time and a cut-off end both.
func (g *Gateway) tunnel(c *conn, up net.Conn) {
	down := func() { _ = up.Close(); _ = c.Close() }
	defer down()
	defer context.AfterFunc(c.acc.context(), down)()
	total := time.AfterFunc(g.opts.Total, down)
	defer total.Stop()
	alive := newWatch(g.opts.Idle, down)
	defer alive.stop()
	var wg sync.WaitGroup
	move := func(to, from net.Conn) {
		if _, err := io.Copy(to, alive.reader(from)); err != nil {
			down()
			return
		}
		if w, ok := to.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		} else {
			down()
		}
	}
	wg.Go(func() { move(up, c) })
	wg.Go(func() { move(c, up) })
	wg.Wait()
}

// watch calls over when nothing has been read for a while.
type watch struct {
	idle time.Duration
	over func()
	last atomic.Int64 // a read costs a store; the timer is set anew only when it fires

	mu    sync.Mutex
	timer *time.Timer // nil: stopped
}

func newWatch(idle time.Duration, over func()) *watch {
	w := &watch{idle: idle, over: over}
	w.touch()
	w.mu.Lock()
	w.timer = time.AfterFunc(idle, w.check)
	w.mu.Unlock()
	return w
}

func (w *watch) touch() { w.last.Store(time.Now().UnixNano()) }

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	left := w.idle - time.Duration(time.Now().UnixNano()-w.last.Load())
	if left > 0 {
		w.timer.Reset(left)
		return
	}
	go w.over()
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *watch) reader(r io.Reader) io.Reader { return &watched{r, w} }

// body is a message's body that touches the watch with every read; nil stays
// nil.
func (w *watch) body(b io.ReadCloser) io.ReadCloser {
	if b == nil {
		return nil
	}
	return struct {
		io.Reader
		io.Closer
	}{w.reader(b), b}
}

// request is the body to send on. The transport reads a body of known length
// once more at its end; the server may have closed it by then, for the answer
// has come, and that error would end the answer with its connection.
func (w *watch) request(r *http.Request) io.ReadCloser {
	if r.Body == nil || r.ContentLength < 0 {
		return w.body(r.Body)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(w.reader(r.Body), r.ContentLength), r.Body}
}

type watched struct {
	r io.Reader
	w *watch
}

func (t *watched) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.w.touch()
	}
	return n, err
}
