package governance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client speaks for one task. Its methods may be called by many goroutines.
type Client struct {
	url   string
	token string
	opts  Options
}

// Options of a Client; the zero value is good.
type Options struct {
	// HTTP carries the requests; nil: a client of its own. It must have no
	// time-out shorter than Hold.
	HTTP *http.Client
	// Hold is how long one request waits for a human; the wait goes on with
	// another request. 0: 5 minutes; at most an hour.
	Hold time.Duration
	// Patience is how long an unreachable host is tried again before a request
	// fails; 0: 30 s. A dispatch is never tried twice.
	Patience time.Duration
}

// New makes a client. taskURL and token are what POST /tasks answered.
func New(taskURL, token string, opts Options) (*Client, error) {
	u, err := url.Parse(taskURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(u.EscapedPath(), "/tasks/") {
		return nil, fmt.Errorf("%q is not a task's URL such as http://127.0.0.1:8122/tasks/ID", taskURL)
	}
	if token == "" {
		return nil, errors.New("the task's token is empty")
	}
	if opts.HTTP == nil {
		opts.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if opts.Hold <= 0 {
		opts.Hold = 5 * time.Minute
	}
	if opts.Patience <= 0 {
		opts.Patience = 30 * time.Second
	}
	opts.Hold = min(opts.Hold, time.Hour)
	return &Client{url: strings.TrimSuffix(taskURL, "/"), token: token, opts: opts}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.opts.HTTP.CloseIdleConnections() }

// Error is a refusal of the host.
type Error struct {
	Status int    // HTTP
	Code   string // stopped, paused, stale_epoch, consumed, fingerprint_mismatch, not_allowed, journal_unavailable, …; may be empty
	Detail string
}

func (e *Error) Error() string {
	if e.Code != "" {
		return "the host refuses (" + e.Code + "): " + e.Detail
	}
	return fmt.Sprintf("the host refuses (%d): %s", e.Status, e.Detail)
}

// try is one request. A refusal is an *Error, anything else means that it is not
// known what the host has done.
func (c *Client) try(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := encode(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.opts.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("the host does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("the host's answer broke off: %w", err)
	}
	if resp.StatusCode >= 300 {
		e := &Error{Status: resp.StatusCode, Detail: http.StatusText(resp.StatusCode)}
		var p struct {
			Error string `json:"error"`
			Code  string `json:"code"`
		}
		if json.Unmarshal(text, &p) == nil && p.Error != "" {
			e.Code, e.Detail = p.Code, p.Error
		}
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the host's answer cannot be read: %w", err)
	}
	return nil
}

// insist tries a request again that may be made twice, as long as the host
// cannot be reached or cannot write its journal. tries is how often it was
// tried.
func (c *Client) insist(ctx context.Context, method, path string, in, out any) (tries int, err error) {
	end := time.Now().Add(c.opts.Patience)
	pause := 50 * time.Millisecond
	for tries = 1; ; tries++ {
		err = c.try(ctx, method, path, in, out)
		var refused *Error
		if err == nil || errors.As(err, &refused) && refused.Status < 500 || time.Now().After(end) {
			return tries, err
		}
		select {
		case <-ctx.Done():
			return tries, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
	}
}
