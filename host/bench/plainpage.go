package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// plain is the plainest page there is, at a server of its own: a line of text,
// and one that a server-sent event changes.
type plain struct {
	url  string
	srv  *http.Server
	send chan string
}

const plainPage = `<!doctype html><title>plain</title><p id="text">plain</p><script>
if (location.hash) new EventSource("/events").onmessage = (ev) => { document.getElementById("text").textContent = ev.data; };
</script>`

func newPlain() (*plain, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &plain{url: "http://" + l.Addr().String() + "/", send: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(plainPage))
	})
	mux.HandleFunc("/events", p.events)
	p.srv = &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = p.srv.Serve(l) }()
	return p, nil
}

func (p *plain) close() { _ = p.srv.Close() }

func (p *plain) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for flush.Flush() == nil {
		select {
		case text := <-p.send:
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// pixels measures event to pixel of the plain page, in ms.
func (p *plain) pixels(t *tab, n int) ([]float64, error) {
	if _, err := t.visit(p.url+"#events", "document.getElementById('text')"); err != nil {
		return nil, err
	}
	var took []float64
	for i := range n {
		if _, err := value[bool](t, fmt.Sprintf("globalThis.pixel = awaited(() => document.getElementById('text').textContent === 'n%d'), true", i)); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		began := time.Now()
		select {
		case p.send <- fmt.Sprintf("n%d", i):
		case <-ctx.Done():
			cancel()
			return nil, errors.New("the plain page does not listen")
		}
		cancel()
		d, err := value[drawn](t, "globalThis.pixel")
		if err != nil {
			return nil, err
		}
		took = append(took, d.At-float64(began.UnixMicro())/1000)
	}
	return took, nil
}
