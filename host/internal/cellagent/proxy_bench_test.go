package cellagent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"

	"github.com/airlock-host/airlock/host/internal/gateway"
)

// benchStage is a workload that measures the time to the first byte of a
// streamed answer: directly, and over its gateway's socket and port.
func benchStage(upstream string) int {
	ways := map[string]*http.Transport{
		"direct": {}, "port": {},
		"socket": {DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("AIRLOCK_GATEWAY_MODEL_SOCKET"))
		}},
	}
	to := map[string]string{"direct": upstream, "port": os.Getenv("AIRLOCK_GATEWAY_MODEL_URL"), "socket": "http://gateway"}
	times := map[string][]time.Duration{}
	body := `{"model":"m","max_tokens":10,"messages":"` + strings.Repeat("x", 60<<10) + `"}`
	for range 500 { // in turns, so that all have the same machine
		for name, tr := range ways {
			start := time.Now()
			resp, err := (&http.Client{Transport: tr}).Post(to[name]+"/v1/messages", "application/json", strings.NewReader(body))
			if err != nil {
				fmt.Println(err)
				return 1
			}
			_, _ = resp.Body.Read(make([]byte, 1))
			times[name] = append(times[name], time.Since(start))
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	for _, name := range []string{"direct", "socket", "port"} {
		slices.Sort(times[name])
		t := times[name]
		fmt.Printf("%s %d %d\n", name, t[len(t)/2].Microseconds(), t[len(t)*99/100].Microseconds())
	}
	return 0
}

// BenchmarkFirstByteFromACell measures gateway_ttfb over everything that is in
// the way: cell agent, cell link, gateway.
func BenchmarkFirstByteFromACell(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n")
	}))
	defer up.Close()
	u, err := url.Parse(up.URL)
	if err != nil {
		b.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{APIs: []gateway.API{{Name: "model", Upstream: u, Headers: []gateway.Header{gateway.NewHeader("x-api-key", "secret-key")}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	a := startAgent(b, plain)
	c, err := cell.Dial(long(b), a.socket(), a.secret, cell.WithDialHandler(func(d *cellv1.Dial, nc net.Conn) {
		g.Carry(gateway.Caller{Mission: "m", Agent: "a", Gateways: []string{"model"}}, d.GetTarget(), nc)
	}))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Bind(long(b), "mission", 1); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := a.sh("s"+fmt.Sprint(time.Now().UnixNano()), `exec "$AIRLOCK_CELL" fetch bench `+up.URL)
		s.Gateways = []*cellv1.Gateway{{Name: "model", MainOnly: true}}
		start(b, c, s)
		r, err := c.ReadOutput(long(b), s.GetSessionId(), 0)
		if err != nil {
			b.Fatal(err)
		}
		text := ""
		for {
			f, err := r.Next()
			if err != nil || f.GetEnd() != nil {
				break
			}
			text += string(f.GetData().GetData())
		}
		b.Log("\n" + text)
		_ = r.Close()
	}
}
