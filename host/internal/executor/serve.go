package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// serveClient calls the HTTP routes of `aiwg serve`. Its errors hold no URL and
// no token.
type serveClient struct {
	base string
	http *http.Client
	// redact takes secrets out of text that came from outside.
	redact func(string) string
}

func newServeClient(base string, redact func(string) string) *serveClient {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = pollers
	t.IdleConnTimeout = 30 * time.Second
	return &serveClient{
		base:   base,
		redact: redact,
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a bearer is never carried to another place
		}},
	}
}

// answerError is an answer other than the one hoped for.
type answerError struct {
	Status     int
	Text       string        // serve's own words, redacted and short
	RetryAfter time.Duration // 0: not given
}

func (e *answerError) Error() string {
	s := fmt.Sprintf("the orchestrator answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

func isStatus(err error, status int) bool {
	var a *answerError
	return errors.As(err, &a) && a.Status == status
}

// call sends one request and decodes a 2xx answer into out (nil: ignored).
func (s *serveClient) call(ctx context.Context, wait time.Duration, method, path, token string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var rd io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		rd = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, rd)
	if err != nil {
		return errors.New("the orchestrator's endpoint is not a URL")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return s.answer(resp, raw)
	}
	if err != nil {
		return fmt.Errorf("reading the orchestrator's answer: %w", err)
	}
	if out == nil {
		return nil
	}
	if json.Unmarshal(raw, out) != nil {
		return errors.New("the orchestrator's answer is not the expected JSON")
	}
	return nil
}

// withoutURL drops the URL that net/http puts into its errors.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

func (s *serveClient) answer(resp *http.Response, raw []byte) *answerError {
	e := &answerError{Status: resp.StatusCode}
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(raw, &body) == nil {
		e.Text = cut(strings.Map(printable, s.redact(body.Error)), 200)
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(min(n, 3600)) * time.Second
	}
	return e
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

func (s *serveClient) register(ctx context.Context, wait time.Duration, body registration) (token string, err error) {
	var got struct {
		Token string `json:"token"`
	}
	if err := s.call(ctx, wait, http.MethodPost, "/api/v1/executors/register", "", body, &got); err != nil {
		return "", err
	}
	if got.Token == "" {
		return "", errors.New("the orchestrator's answer to the registration has no token")
	}
	return got.Token, nil
}

func (s *serveClient) deregister(ctx context.Context, wait time.Duration, id, token string) error {
	err := s.call(ctx, wait, http.MethodDelete, "/api/v1/executors/"+segment(id), token, nil, nil)
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// connected says whether serve has this executor, and its socket.
func (s *serveClient) connected(ctx context.Context, wait time.Duration, id string) (bool, error) {
	var got struct {
		Connected bool `json:"connected"`
	}
	err := s.call(ctx, wait, http.MethodGet, "/api/v1/executors/"+segment(id), "", nil, &got)
	if isStatus(err, http.StatusNotFound) {
		return false, nil
	}
	return got.Connected, err
}

// known is what a read-back shows of a mission.
type known struct {
	State       string `json:"state"`
	CompletedAt string `json:"completed_at"`
}

// mission reads a mission back; a 404 is an *answerError.
func (s *serveClient) mission(ctx context.Context, wait time.Duration, id string) (known, error) {
	var got known
	err := s.call(ctx, wait, http.MethodGet, "/api/v1/missions/"+segment(id), "", nil, &got)
	return got, err
}

// segment encodes one path segment. A lone dot or two would be cleaned away on
// the way if they were left as they are.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}
