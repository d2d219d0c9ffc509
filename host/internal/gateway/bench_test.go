package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkFirstByte measures gateway_ttfb: what the way through cell link and
// gateway adds to the time to the first byte of a stream.
func BenchmarkFirstByte(b *testing.B) {
	r := newRig(b, change{})
	r.up.answer(func(w http.ResponseWriter, _ *http.Request, _ []byte) { say(w, messageStart+messageEnd) })
	direct := &http.Client{Transport: &http.Transport{}}
	defer direct.CloseIdleConnections()
	run := func(b *testing.B, c *http.Client, url string) {
		var times []time.Duration
		body := []byte(`{"model":"m","max_tokens":10,"messages":"` + strings.Repeat("x", 60<<10) + `"}`)
		for b.Loop() {
			start := time.Now()
			resp, err := c.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			one := make([]byte, 1)
			_, _ = resp.Body.Read(one)
			times = append(times, time.Since(start))
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		p50, p99 := percentile(times, 50), percentile(times, 99)
		b.ReportMetric(float64(p50.Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(p99.Microseconds())/1000, "p99-ms")
	}
	b.Run("direct", func(b *testing.B) { run(b, direct, r.up.URL+"/v1/messages") })
	who := caller("m1")
	l := newLink(b, r.Gateway, who)
	b.Run("gateway", func(b *testing.B) { run(b, l.client("anthropic"), "http://x/v1/messages") })
	who = caller("m2")
	who.Limit = Amount{Tokens: 1 << 50}
	l2 := newLink(b, r.Gateway, who)
	b.Run("gateway, budget", func(b *testing.B) { run(b, l2.client("anthropic"), "http://x/v1/messages") })
}

// BenchmarkCut measures cutoff: from Cut to the upstream's and the cell's
// notice.
func BenchmarkCut(b *testing.B) {
	r := newRig(b, change{})
	gone := make(chan time.Time, 1)
	r.up.answer(func(w http.ResponseWriter, req *http.Request, _ []byte) {
		say(w, messageStart)
		<-req.Context().Done()
		gone <- time.Now()
	})
	var up, down []time.Duration
	for i := 0; b.Loop(); i++ {
		name := "m" + strconv.Itoa(i)
		resp, err := newLink(b, r.Gateway, caller(name)).client("anthropic").Post("http://x/v1/messages", "application/json", strings.NewReader(`{}`))
		if err != nil {
			b.Fatal(err)
		}
		ended := make(chan time.Time, 1)
		go func() { _, _ = io.Copy(io.Discard, resp.Body); ended <- time.Now() }()
		start := time.Now()
		r.Cut(name)
		up, down = append(up, (<-gone).Sub(start)), append(down, (<-ended).Sub(start))
		_ = resp.Body.Close()
		r.Forget(name)
	}
	b.ReportMetric(float64(percentile(up, 50).Microseconds())/1000, "upstream-p50-ms")
	b.ReportMetric(float64(percentile(up, 99).Microseconds())/1000, "upstream-p99-ms")
	b.ReportMetric(float64(percentile(down, 50).Microseconds())/1000, "cell-p50-ms")
	b.ReportMetric(float64(percentile(down, 99).Microseconds())/1000, "cell-p99-ms")
}

func percentile(times []time.Duration, p int) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, len(times)*p/100)]
}
