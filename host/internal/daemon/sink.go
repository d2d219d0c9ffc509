package daemon

import (
	"context"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads"
)

// sinkGrace is how long the end of a host waits for the second place of heads.
const sinkGrace = 2 * time.Second

// openSink starts to send signed heads to governance.head.url; nil where there
// is none.
func (h *host) openSink(url string) func(lines []byte) {
	if url == "" {
		return nil
	}
	h.sink = heads.OpenSink(heads.SinkOptions{URL: url, Host: h.cfg.Name, Log: h.log.Named("heads")})
	return h.sink.Offer
}

// closeSink sends what waits, for a short time. What is not taken then is
// offered again at the next start.
func (h *host) closeSink() {
	if h.sink == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sinkGrace)
	defer cancel()
	if err := h.sink.Close(ctx); err != nil {
		h.log.Warn("the second place of heads did not take all; they are offered again at the next start", "error", err)
	}
}
