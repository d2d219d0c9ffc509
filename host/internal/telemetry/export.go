package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/airlock-host/airlock/host/internal/journal"
)

const (
	queued    = 4096             // missions that wait for their trace to be sent
	maxEvents = 50_000           // of a mission that are read for its trace
	tryFor    = 2 * time.Minute  // one trace
	sendTime  = 10 * time.Second // one attempt
	lastWords = 3 * time.Second  // for what waits when the host ends
)

// Journal reads a task's events with a sequence above after, in order.
type Journal interface {
	Events(ctx context.Context, task string, after uint64, limit int) ([]journal.Event, error)
}

// TraceOptions of an Exporter.
type TraceOptions struct {
	Endpoint string // http(s) URL of an OTLP receiver; /v1/traces is added where it has no path
	Host     string // service.instance.id
	Version  string
	Journal  Journal
	Log      hclog.Logger
	Register prometheus.Registerer // nil: not counted
}

// Exporter sends the trace of every mission that has ended, over OTLP/HTTP. What
// cannot be sent is given up after a while: a trace is a help, not a record.
type Exporter struct {
	opts  TraceOptions
	url   string
	queue chan string
	http  *http.Client
	sent  *prometheus.CounterVec
}

// NewExporter makes an exporter; Run does the work.
func NewExporter(o TraceOptions) (*Exporter, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("telemetry.otlp_endpoint %q is no URL", o.Endpoint)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	x := &Exporter{opts: o, url: u.String(), queue: make(chan string, queued), http: &http.Client{Transport: &http.Transport{}, Timeout: sendTime},
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "airlock_traces_total",
			Help: "Traces of missions that have ended, by what became of them: sent, failed (given up) or dropped (too many waited)."}, []string{"result"})}
	if o.Register != nil {
		if err := o.Register.Register(x.sent); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Ended asks for a mission's trace to be sent; it never blocks.
func (x *Exporter) Ended(missionID string) {
	select {
	case x.queue <- missionID:
	default:
		x.sent.WithLabelValues("dropped").Inc()
	}
}

// Run sends traces until ctx ends, then what waits for a moment longer.
func (x *Exporter) Run(ctx context.Context) {
	defer x.http.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			x.flush()
			return
		case id := <-x.queue:
			x.send(ctx, id)
		}
	}
}

func (x *Exporter) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case id := <-x.queue:
			x.send(ctx, id)
		default:
			return
		}
	}
}

func (x *Exporter) send(ctx context.Context, id string) {
	err := x.try(ctx, id)
	if err == nil {
		x.sent.WithLabelValues("sent").Inc()
		return
	}
	x.sent.WithLabelValues("failed").Inc()
	x.opts.Log.Warn("a trace could not be sent", "mission", id, "endpoint", x.url, "error", err)
}

func (x *Exporter) try(ctx context.Context, id string) error {
	events, err := x.read(ctx, id)
	if err != nil {
		return err
	}
	trace, ok := Build(events)
	if !ok {
		return errors.New("its journal does not begin with its opening")
	}
	body, err := proto.Marshal(x.encode(trace))
	if err != nil {
		return err
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, x.post(ctx, body) }, backoff.WithMaxElapsedTime(tryFor))
	return err
}

func (x *Exporter) read(ctx context.Context, id string) (events []journal.Event, err error) {
	for len(events) < maxEvents {
		after := uint64(0)
		if n := len(events); n > 0 {
			after = events[n-1].Sequence
		}
		page, err := x.opts.Journal.Events(ctx, id, after, 100)
		if err != nil || len(page) == 0 {
			return events, err
		}
		events = append(events, page...)
	}
	return events, nil
}

// post makes one attempt; a refusal for good is permanent.
func (x *Exporter) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := x.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	switch code := resp.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		return fmt.Errorf("the receiver answered %s", resp.Status)
	default:
		return backoff.Permanent(fmt.Errorf("the receiver answered %s", resp.Status))
	}
}

// encode makes the body of a request: ExportTraceServiceRequest and TracesData
// are the same on the wire.
func (x *Exporter) encode(t Trace) *tracev1.TracesData {
	spans := make([]*tracev1.Span, 0, len(t.Spans))
	for _, s := range t.Spans {
		spans = append(spans, encodeSpan(t.ID, s))
	}
	return &tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource: &resourcev1.Resource{Attributes: attributes(map[string]string{
			"service.name": "airlock", "service.version": x.opts.Version, "service.instance.id": x.opts.Host})},
		ScopeSpans: []*tracev1.ScopeSpans{{Scope: &commonv1.InstrumentationScope{Name: "airlock", Version: x.opts.Version}, Spans: spans}},
	}}}
}

func encodeSpan(trace string, s *Span) *tracev1.Span {
	out := &tracev1.Span{TraceId: id(trace), SpanId: id(s.ID), ParentSpanId: id(s.Parent), Name: s.Name, Kind: tracev1.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nano(s.Start), EndTimeUnixNano: nano(s.End), Attributes: attributes(s.Attributes),
		Status: &tracev1.Status{Code: tracev1.Status_STATUS_CODE_OK}}
	if s.Failed != "" {
		out.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: s.Failed}
	}
	for _, n := range s.Notes {
		out.Events = append(out.Events, &tracev1.Span_Event{TimeUnixNano: nano(n.At), Name: n.Text})
	}
	return out
}

func nano(t time.Time) uint64 { return uint64(t.UnixNano()) } //nolint:gosec // after 1970

func id(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}

func attributes(m map[string]string) []*commonv1.KeyValue {
	var out []*commonv1.KeyValue
	for _, k := range sortedKeys(m) {
		if m[k] != "" {
			out = append(out, &commonv1.KeyValue{Key: k, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: m[k]}}})
		}
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
