package telemetry

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixed []journal.Event

func (f fixed) Events(_ context.Context, _ string, after uint64, limit int) ([]journal.Event, error) {
	rest := f[min(int(after), len(f)):]
	return rest[:min(limit, len(rest))], nil
}

func TestTracesAreSentUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	got := make(chan *tracev1.TracesData, 1)
	var tries atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 { // by one connection, one after the other
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var data tracev1.TracesData
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &data) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got <- &data
	}))
	defer receiver.Close()
	x, err := NewExporter(TraceOptions{Endpoint: receiver.URL, Host: "h", Version: "1", Log: hclog.NewNullLogger(), Register: prometheus.NewRegistry(),
		Journal: fixed(chain(t, journal.TaskOpened, opening(nil), journal.Ended, m{"state": "done"}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); x.Run(ctx) }()
	x.Ended("m")
	select {
	case data := <-got:
		spans := data.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
		if len(spans) != 2 || hex.EncodeToString(spans[0].GetTraceId()) != "018f000000007000800000000000abcd" || len(spans[0].GetParentSpanId()) != 0 {
			t.Errorf("spans %v", spans)
		}
	case <-time.After(time.Minute):
		t.Error("no trace came")
	}
	for end := time.Now().Add(time.Minute); testutil.ToFloat64(x.sent.WithLabelValues("sent")) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // the answer is on its way
	}
	cancel()
	<-done
	if n := testutil.ToFloat64(x.sent.WithLabelValues("sent")); n != 1 {
		t.Errorf("%v traces are counted as sent", n)
	}
	receiver.CloseClientConnections()
}
