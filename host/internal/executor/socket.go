package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// socket is one WebSocket to serve. Frames are numbered as they are written; a
// pong proves how far serve has read.
type socket struct {
	ws     *websocket.Conn
	t      Timings
	ctx    context.Context // ends with the reason why the socket is over
	cancel context.CancelCauseFunc

	wmu    sync.Mutex
	frames atomic.Uint64 // written so far
	acked  atomic.Uint64 // of them, those that serve has read
	kick   chan struct{}
	pongs  chan uint64
	onAck  func(upTo uint64) // called from one goroutine; may be nil
	wg     sync.WaitGroup
	read   chan struct{} // closed when the reader is done
}

// maxFrame is the largest inbound frame.
const maxFrame = 4 << 20

// pingGap is the shortest time between two pings that ask how far serve is.
const pingGap = 5 * time.Millisecond

// Why a socket ends, beside errors of the network.
var (
	errPlanned  = errors.New("the link is renewed")
	errClosing  = errors.New("the host closes the link")
	errNoPong   = errors.New("the orchestrator did not answer a ping")
	errRejected = errors.New("the orchestrator refused the token after the upgrade (close code 4001)")
	errNotKnown = errors.New("the orchestrator does not show this executor as connected")
)

// dial opens a socket. The token goes into the URL, where serve looks for it;
// no error of this function holds the URL.
func dial(ctx context.Context, base, path, token string, t Timings, redact func(string) string) (*socket, error) {
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: t.RequestWait}
	to := "ws" + strings.TrimPrefix(base, "http") + path + "?token=" + url.QueryEscape(token)
	ws, resp, err := dialer.DialContext(ctx, to, nil)
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("the WebSocket was refused with status %d", resp.StatusCode)
		}
		return nil, errors.New(redact(withoutURL(err).Error()))
	}
	s := &socket{ws: ws, t: t, kick: make(chan struct{}, 1), pongs: make(chan uint64, 1), read: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	ws.SetReadLimit(maxFrame)
	ws.SetPongHandler(func(payload string) error {
		if n, err := strconv.ParseUint(payload, 10, 64); err == nil {
			select { // the newest answer wins; the reader never waits
			case <-s.pongs:
			default:
			}
			s.pongs <- n
		}
		return nil
	})
	return s, nil
}

// start runs the reader and the pings until close.
func (s *socket) start(onFrame func([]byte), onAck func(upTo uint64)) {
	s.onAck = onAck
	s.wg.Go(func() {
		defer close(s.read)
		for {
			_, frame, err := s.ws.ReadMessage()
			if err != nil {
				if websocket.IsCloseError(err, 4001) {
					err = errRejected
				}
				s.cancel(err)
				return
			}
			if s.ctx.Err() == nil {
				onFrame(frame)
			}
		}
	})
	s.wg.Go(s.ping)
}

// write sends one text frame and returns its number. note, if given, runs just
// before, under the lock that orders the frames.
func (s *socket) write(frame []byte, note func(n uint64)) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	n := s.frames.Add(1)
	if note != nil {
		note(n)
	}
	_ = s.ws.SetWriteDeadline(time.Now().Add(s.t.WriteWait))
	if err := s.ws.WriteMessage(websocket.TextMessage, frame); err != nil {
		s.cancel(fmt.Errorf("writing to the orchestrator: %w", err))
		return err
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return nil
}

// ping asks, after frames were written and at least every PingEvery, how far
// serve has read. One ping is under way at a time.
func (s *socket) ping() {
	timer := time.NewTimer(s.t.PingEvery)
	defer timer.Stop()
	for {
		timer.Reset(s.t.PingEvery)
		select {
		case <-s.kick:
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		if !s.pingOnce(timer) {
			return
		}
		timer.Reset(pingGap)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *socket) pingOnce(timer *time.Timer) bool {
	s.wmu.Lock()
	n := s.frames.Load()
	err := s.ws.WriteControl(websocket.PingMessage, []byte(strconv.FormatUint(n, 10)), time.Now().Add(s.t.WriteWait))
	s.wmu.Unlock()
	if err != nil {
		s.cancel(fmt.Errorf("writing to the orchestrator: %w", err))
		return false
	}
	timer.Reset(s.t.PongWait)
	for {
		select {
		case got := <-s.pongs:
			if got != n { // an answer to nothing we asked
				continue
			}
			s.acked.Store(n)
			if s.onAck != nil {
				s.onAck(n)
			}
			return true
		case <-timer.C:
			s.cancel(errNoPong)
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// ended is why the socket is over, in words without secrets; ours says that it
// was this side that wanted it, so that the other side deserves a handshake.
func (s *socket) ended(redact func(string) string) (why error, ours bool) {
	cause := context.Cause(s.ctx)
	for _, planned := range []error{errPlanned, errNotKnown, errClosing, context.Canceled} {
		ours = ours || errors.Is(cause, planned)
	}
	return &shownError{text: redact(cause.Error()), cause: cause}, ours
}

// shownError shows a cleaned text and still is its cause.
type shownError struct {
	text  string
	cause error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.cause }

// close ends the socket for good and returns when nothing of it is left. A
// planned end (code not 0) waits for the other side of the close handshake:
// serve must have let go of this socket before the next one is opened.
func (s *socket) close(code int) {
	s.cancel(errClosing)
	if code != 0 {
		msg := websocket.FormatCloseMessage(code, "")
		if s.ws.WriteControl(websocket.CloseMessage, msg, time.Now().Add(s.t.CloseWait)) == nil {
			select {
			case <-s.read:
			case <-time.After(s.t.CloseWait):
			}
		}
	}
	_ = s.ws.Close()
	s.wg.Wait()
}
