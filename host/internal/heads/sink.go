package heads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	sinkQueue = 1024    // records that may wait
	sinkBody  = 1 << 20 // bytes of records in one post
)

// SinkOptions of a Sink.
type SinkOptions struct {
	// URL takes the posts.
	URL string
	// Host names the host in each post.
	Host string
	Log  hclog.Logger
	// Gather is how long a record may wait for others; 0: 250 ms.
	Gather time.Duration
	// Timeout bounds one post; 0: 10 s.
	Timeout time.Duration
	// Wait is the pause after a failure; it doubles up to 128 times as much.
	// 0: 250 ms.
	Wait time.Duration
	// Queue is how many records may wait; 0: 1024.
	Queue int
}

// Sink is a second place for signed heads: a server that gets each record by
// HTTP. It is a lower bound as the file is: a record may come late, twice, or,
// when the server was away for long, not at all; the next one of the task
// covers it.
type Sink struct {
	opts   SinkOptions
	client *http.Client

	mu      sync.Mutex
	queue   []json.RawMessage // oldest first
	sending int               // of the front of the queue
	dropped int               // for want of room, since the last good post
	err     error             // of the last post; nil after a good one
	since   time.Time         // of the first failure

	life context.Context // of posts, those that are still to come too
	cut  func()          // ends it
	kick chan struct{}
	stop chan struct{}
	done chan struct{}
}

// posted is the body of a post. Records are the lines of the file of heads,
// each with its signature.
type posted struct {
	V       int               `json:"v"` // 1
	Host    string            `json:"host"`
	Records []json.RawMessage `json:"records"`
}

// OpenSink starts to send. Close ends it.
func OpenSink(opts SinkOptions) *Sink {
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	if opts.Gather == 0 {
		opts.Gather = 250 * time.Millisecond
	}
	if opts.Timeout == 0 {
		opts.Timeout = 10 * time.Second
	}
	if opts.Wait == 0 {
		opts.Wait = 250 * time.Millisecond
	}
	if opts.Queue == 0 {
		opts.Queue = sinkQueue
	}
	s := &Sink{
		opts: opts, kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		client: &http.Client{
			Transport: &http.Transport{Proxy: nil, MaxResponseHeaderBytes: 16 << 10, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1},
			// A signed head is for the place that was configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.life, s.cut = context.WithCancel(context.Background())
	go s.run()
	return s
}

// Offer takes lines of the file of heads. It never waits: where there is no
// room the oldest records go.
func (s *Sink) Offer(lines []byte) {
	s.mu.Lock()
	for line := range bytes.Lines(lines) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(s.queue) >= s.opts.Queue {
			drop := min(s.sending, len(s.queue)-1) // what is being sent stays
			s.queue = append(s.queue[:drop:drop], s.queue[drop+1:]...)
			s.dropped++
		}
		s.queue = append(s.queue, bytes.Clone(line))
	}
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Err says why the last post failed, since when, and how much waits; nil
// normally.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("governance.head.url has taken no heads since %s: %w; %d records wait, %d were dropped for want of room",
		s.since.UTC().Format(time.RFC3339), s.err, len(s.queue), s.dropped)
}

// Close sends what waits, for as long as the context lasts, and ends.
func (s *Sink) Close(ctx context.Context) error {
	close(s.stop)
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.cut()
	<-s.done
	s.client.CloseIdleConnections()
	return s.Err()
}

// run sends until it is stopped; then once more what waits.
func (s *Sink) run() {
	defer close(s.done)
	wait := s.opts.Wait
	for {
		select {
		case <-s.kick:
		case <-s.stop:
			for s.send() && s.waiting() > 0 {
				continue
			}
			return
		}
		if !s.pause(s.opts.Gather) {
			continue
		}
		for s.waiting() > 0 {
			if s.send() {
				wait = s.opts.Wait
				continue
			}
			if !s.pause(wait) {
				break
			}
			wait = min(2*wait, 128*s.opts.Wait)
		}
	}
}

func (s *Sink) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// pause is false when the sink was stopped meanwhile.
func (s *Sink) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// send posts the front of the queue and says whether it was taken.
func (s *Sink) send() bool {
	ctx, cancel := context.WithTimeout(s.life, s.opts.Timeout)
	defer cancel()
	s.mu.Lock()
	n, size := 0, 0
	for n < len(s.queue) && (n == 0 || size+len(s.queue[n]) <= sinkBody) {
		size += len(s.queue[n])
		n++
	}
	batch := s.queue[:n:n]
	s.sending = n
	s.mu.Unlock()
	var err error
	if n > 0 {
		err = s.post(ctx, batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = 0
	if err == nil {
		if s.err != nil {
			s.opts.Log.Info("the second place takes signed heads again", "dropped", s.dropped)
		}
		s.queue, s.err, s.dropped = s.queue[n:], nil, 0
		return true
	}
	if s.err == nil {
		s.since = time.Now()
		s.opts.Log.Error("the second place does not take signed heads; they are kept and tried again", "error", err)
	}
	s.err = err
	return false
}

func (s *Sink) post(ctx context.Context, batch []json.RawMessage) error {
	body, err := json.Marshal(posted{V: 1, Host: s.opts.Host, Records: batch})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // for the connection's sake
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("it answered with %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}
