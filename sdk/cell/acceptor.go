package cell

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrForged says that a preamble came whose MAC was wrong or whose nonce had
// been used before. On a socket, close the connection; on a stream that
// outlives its connections, call Next again.
var ErrForged = errors.New("preamble with a wrong proof")

// errReopened ends a Link when the next preamble came on the same stream.
var errReopened = errors.New("a newer connection took the stream over")

// seenNonces is how many preambles an agent remembers, so that stale bytes or
// somebody who has recorded a connection cannot open it again.
const seenNonces = 256

// Responder is the agent's end of every opening of one cell.
type Responder struct {
	secret []byte

	mu   sync.Mutex
	seen [seenNonces]nonce
	used int
}

// NewResponder returns a Responder for a cell's secret.
func NewResponder(secret []byte) *Responder {
	return &Responder{secret: bytes.Clone(secret)}
}

// Accept prepares to find openings on a stream. shared says that the stream
// outlives its connections and is never closed (a virtio-serial port); else
// closing a Link closes it.
func (r *Responder) Accept(rw io.ReadWriteCloser, shared bool) *Acceptor {
	return &Acceptor{responder: r, rw: rw, br: bufio.NewReaderSize(rw, 4096), shared: shared}
}

// fresh says whether the nonce is new, and remembers it.
func (r *Responder) fresh(n nonce) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen[:min(r.used, seenNonces)] {
		if s == n {
			return false
		}
	}
	r.seen[r.used%seenNonces] = n
	r.used++
	return true
}

// Acceptor finds openings on one stream.
type Acceptor struct {
	responder *Responder
	rw        io.ReadWriteCloser
	br        *bufio.Reader
	shared    bool
	pending   *nonce // of a preamble that came in the middle of a Link
	last      *Link
}

// Next throws input away until a valid preamble has come, answers it and
// returns the new connection. The Link before it is dead from then on. It
// returns ErrForged (see there), or the stream's own error.
func (a *Acceptor) Next() (*Link, error) {
	if a.last != nil {
		_ = a.last.Close()
		a.last.readers.Lock() // until its last Read is over
		if d, ok := a.rw.(interface{ SetReadDeadline(time.Time) error }); ok {
			_ = d.SetReadDeadline(time.Time{})
		}
		a.last.readers.Unlock()
		a.last = nil
	}
	host, err := a.find()
	if err != nil {
		return nil, err
	}
	l := &Link{acceptor: a, host: host, agent: newNonce()}
	if _, err := a.rw.Write(agentPreamble(a.responder.secret, host, l.agent)); err != nil {
		return nil, err
	}
	a.last = l
	return l, nil
}

// find returns the nonce of the next preamble.
func (a *Acceptor) find() (nonce, error) {
	if a.pending != nil {
		n := *a.pending
		a.pending = nil
		return n, nil
	}
	for {
		if _, err := a.br.Peek(1); err != nil {
			return nonce{}, err
		}
		b, _ := a.br.Peek(a.br.Buffered())
		i := bytes.IndexByte(b, mark)
		if i < 0 {
			_, _ = a.br.Discard(len(b))
			continue
		}
		_, _ = a.br.Discard(i)
		n, found, err := a.candidate()
		if err != nil || found {
			return n, err
		}
		_, _ = a.br.Discard(1)
	}
}

// candidate looks at what begins with a mark. It takes a preamble off the
// stream; of anything else it takes nothing, but for a forged preamble its
// mark.
func (a *Acceptor) candidate() (n nonce, found bool, err error) {
	for k := 2; k <= magicSize; k++ { // no more than is needed to say no
		b, err := a.br.Peek(k)
		if err != nil {
			return n, false, err
		}
		if b[k-1] != hostMagic[k-1] {
			return n, false, nil
		}
	}
	b, err := a.br.Peek(preambleSize)
	if err != nil {
		return n, false, err
	}
	n, ok := parse(a.responder.secret, b, hostMagic, "airlock-cell preamble")
	if !ok || !a.responder.fresh(n) {
		_, _ = a.br.Discard(1)
		return n, false, ErrForged
	}
	_, _ = a.br.Discard(preambleSize)
	return n, true, nil
}

// Link is one connection, from behind the opening on. It is what yamux runs
// over.
type Link struct {
	acceptor    *Acceptor
	host, agent nonce

	readers sync.Mutex // held by Read
	mu      sync.Mutex // held by Write
	closed  bool
}

// Proven says whether proof is the host's Hello.proof for this connection.
func (l *Link) Proven(proof []byte) bool {
	return hmac.Equal(proof, hostProof(l.acceptor.responder.secret, l.host, l.agent))
}

// Read returns what the host has written. When the host's next preamble comes,
// it ends, and Acceptor.Next returns the connection which that began.
func (l *Link) Read(p []byte) (int, error) {
	l.readers.Lock()
	defer l.readers.Unlock()
	if l.isClosed() {
		return 0, errReopened
	}
	a := l.acceptor
	if _, err := a.br.Peek(1); err != nil {
		return 0, err
	}
	b, _ := a.br.Peek(min(len(p), a.br.Buffered()))
	i := bytes.IndexByte(b, mark)
	if i < 0 {
		i = len(b)
	}
	if i > 0 {
		copy(p, b[:i])
		_, _ = a.br.Discard(i)
		return i, nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	b, err := a.br.Peek(2)
	if err != nil {
		return 0, err
	}
	if b[1] == markLiteral {
		p[0] = mark
		_, _ = a.br.Discard(2)
		return 1, nil
	}
	n, found, err := a.candidate()
	if err == nil && !found {
		err = errors.New("torn frame") // a mark that the host cannot have sent
	}
	if found {
		a.pending, err = &n, errReopened
	}
	return 0, err
}

// Write sends to the host.
func (l *Link) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, errReopened
	}
	return l.acceptor.rw.Write(p)
}

// Close ends the connection: the stream itself is closed, or for a shared one
// the Read that may be blocked in it is woken.
func (l *Link) Close() error {
	a := l.acceptor
	if !a.shared {
		err := a.rw.Close() // first: it also ends a Write that is blocked
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		return err
	}
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if d, ok := a.rw.(interface{ SetReadDeadline(time.Time) error }); ok && !already {
		_ = d.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

func (l *Link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
