package cell

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

var testSecret = bytes.Repeat([]byte{0x5a}, 32)

// port is a stream that outlives its connections, as a virtio-serial port is
// seen from inside: reads come from in, writes go to out.
type port struct {
	in  io.Reader
	out io.Writer
}

func (p *port) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *port) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *port) Close() error                { return errors.New("a port is never closed") }

func TestEscapingIsUndoneAndHidesEveryMark(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{
		{}, {mark}, {mark, mark, mark}, {mark, markLiteral}, []byte(hostMagic), []byte("plain"),
		hostPreamble(testSecret, newNonce()), bytes.Repeat([]byte{mark, 'A'}, 50_000),
	} {
		for _, oneByte := range []bool{false, true} {
			n := newNonce()
			var wire bytes.Buffer
			wire.Write(hostPreamble(testSecret, n))
			esc := &escaper{w: &wire}
			if k, err := esc.Write(data); err != nil || k != len(data) {
				t.Fatal(k, err)
			}
			var in io.Reader = &wire
			if oneByte {
				in = iotest.OneByteReader(in)
			}
			l, err := NewResponder(testSecret).Accept(&port{in, io.Discard}, true).Next()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(l); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes became %d, %v", len(data), len(got), err)
			}
		}
	}
}

func TestPreambleInsideOfATornFrame(t *testing.T) {
	t.Parallel()
	first, second := newNonce(), newNonce()
	var wire bytes.Buffer
	wire.WriteString("garbage \xa7 ALCELL \xa7ALCE")
	wire.Write(hostPreamble(testSecret, first))
	esc := &escaper{w: &wire}
	_, _ = esc.Write([]byte("the beginning of a frame \xa7 that"))
	wire.Write(hostPreamble(testSecret, second))
	_, _ = esc.Write([]byte("the next connection"))
	a := NewResponder(testSecret).Accept(&port{&wire, io.Discard}, true)
	l, err := a.Next()
	if err != nil || l.host != first {
		t.Fatal(err)
	}
	got, err := io.ReadAll(l)
	if string(got) != "the beginning of a frame \xa7 that" || !errors.Is(err, errReopened) {
		t.Errorf("%q %v", got, err)
	}
	l2, err := a.Next()
	if err != nil || l2.host != second {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(l2); string(got) != "the next connection" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, err := l.Read(make([]byte, 1)); err == nil {
		t.Error("the older connection still reads")
	}
	if _, err := l.Write([]byte("x")); err == nil {
		t.Error("the older connection still writes")
	}
}

func TestPreambleCutShortByTheNext(t *testing.T) {
	t.Parallel()
	n := newNonce()
	for cut := 1; cut < preambleSize; cut++ {
		var wire bytes.Buffer
		wire.Write(hostPreamble(testSecret, newNonce())[:cut])
		wire.Write(hostPreamble(testSecret, n))
		a := NewResponder(testSecret).Accept(&port{&wire, io.Discard}, true)
		l, err := a.Next()
		for errors.Is(err, ErrForged) {
			l, err = a.Next()
		}
		if err != nil || l.host != n {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestPreambleCountsOnce(t *testing.T) {
	t.Parallel()
	r := NewResponder(testSecret)
	p := hostPreamble(testSecret, newNonce())
	if _, err := r.Accept(&port{bytes.NewReader(p), io.Discard}, false).Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Accept(&port{bytes.NewReader(p), io.Discard}, false).Next(); !errors.Is(err, ErrForged) {
		t.Errorf("a recorded preamble: %v", err)
	}
	p = hostPreamble([]byte("another secret"), newNonce())
	if _, err := r.Accept(&port{bytes.NewReader(p), io.Discard}, false).Next(); !errors.Is(err, ErrForged) {
		t.Errorf("a forged preamble: %v", err)
	}
}

func TestProofsAreBoundToBothNonces(t *testing.T) {
	t.Parallel()
	h, a := newNonce(), newNonce()
	l := &Link{acceptor: &Acceptor{responder: NewResponder(testSecret)}, host: h, agent: a}
	if !l.Proven(hostProof(testSecret, h, a)) {
		t.Error("the right proof is refused")
	}
	for name, p := range map[string][]byte{
		"nothing": nil, "other host nonce": hostProof(testSecret, newNonce(), a), "other agent nonce": hostProof(testSecret, h, newNonce()),
		"swapped": hostProof(testSecret, a, h), "other secret": hostProof([]byte("x"), h, a),
		"the agent's own": agentPreamble(testSecret, h, a)[magicSize+nonceSize:],
	} {
		if l.Proven(p) {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Two connections one after the other over one stream that stays, the first
// cut in the middle of a frame: what the host of the second sees is clean.
func TestSharedStreamTakesANewConnection(t *testing.T) {
	t.Parallel()
	host, guest := net.Pipe()
	defer host.Close()
	defer guest.Close()
	served := make(chan string, 2)
	go func() {
		a := NewResponder(testSecret).Accept(guest, true)
		for range 2 {
			l, err := a.Next()
			if err != nil {
				served <- err.Error()
				continue
			}
			b, _ := io.ReadAll(io.LimitReader(l, 5))
			_, _ = l.Write([]byte("answer to " + string(b)))
			served <- string(b)
		}
	}()
	for _, word := range []string{"first", "other"} {
		n := newNonce()
		go func() {
			_, _ = host.Write([]byte("stale \xa7A"))
			_, _ = host.Write(hostPreamble(testSecret, n))
			_, _ = (&escaper{w: host}).Write([]byte(word))
		}()
		br := newReader(host)
		if _, err := findAgent(br, testSecret, n); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len("answer to "+word))
		if _, err := io.ReadFull(br, b); err != nil || string(b) != "answer to "+word {
			t.Errorf("%q %v", b, err)
		}
		if got := <-served; got != word {
			t.Errorf("the agent read %q", got)
		}
	}
}

func TestHostFindsTheAgentBehindStaleBytes(t *testing.T) {
	t.Parallel()
	h, a := newNonce(), newNonce()
	var wire bytes.Buffer
	wire.Write(agentPreamble(testSecret, newNonce(), newNonce())) // of a connection before
	wire.WriteString("stale output \xa7ALCELL\x02 \xa7\xa7")
	wire.Write(agentPreamble(testSecret, h, a))
	wire.WriteString("rest")
	br := newReader(iotest.OneByteReader(&wire))
	got, err := findAgent(br, testSecret, h)
	if err != nil || got != a {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(br); string(rest) != "rest" {
		t.Errorf("rest %q", rest)
	}
}

func FuzzAcceptor(f *testing.F) {
	n := nonce{1, 2, 3}
	p := hostPreamble(testSecret, n)
	f.Add([]byte("x"), []byte("y"))
	f.Add(p[:20], p)
	f.Add([]byte("\xa7ALCELL\x01"), []byte("\xa7\x00\xa7A"))
	f.Fuzz(func(t *testing.T, garbage, data []byte) {
		// Garbage cannot forge a preamble, so the real one is found, and what
		// comes behind it arrives as it was sent.
		var wire bytes.Buffer
		wire.Write(garbage)
		wire.Write(hostPreamble(testSecret, n))
		_, _ = (&escaper{w: &wire}).Write(data)
		a := NewResponder(testSecret).Accept(&port{&wire, io.Discard}, true)
		l, err := a.Next()
		for errors.Is(err, ErrForged) {
			l, err = a.Next()
		}
		if bytes.Contains(garbage, p) {
			return
		}
		if err != nil || l.host != n {
			t.Fatalf("not found: %v", err)
		}
		if got, err := io.ReadAll(l); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%q became %q, %v", data, got, err)
		}
		// And as a whole, whatever it is, it ends.
		a = NewResponder(testSecret).Accept(&port{bytes.NewReader(append(garbage, data...)), io.Discard}, true)
		for end := time.Now().Add(5 * time.Second); ; {
			if l, err := a.Next(); err == nil {
				_, _ = io.ReadAll(l)
			} else if !errors.Is(err, ErrForged) {
				return
			}
			if time.Now().After(end) {
				t.Fatal("it does not end")
			}
		}
	})
}
