package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

const (
	maxAnswer = 64 << 10 // bytes of an answer's body
	maxHeader = 16 << 10 // bytes of an answer's header
)

// endpoint is where calls are posted to.
type endpoint struct {
	url     string
	token   string
	timeout time.Duration
	client  *http.Client
}

// newEndpoint makes an endpoint that goes where it is told and nowhere else: no
// proxy from the environment, no redirects. Plain http stays on this machine,
// which is checked by the address that is dialled and not by its name.
func newEndpoint(to, token string, timeout time.Duration) (*endpoint, error) {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("it is neither https nor http")
	case u.Host == "" || u.User != nil || u.Fragment != "":
		return nil, errors.New("it needs a host, and takes neither a user nor a fragment")
	}
	dialer := &net.Dialer{}
	if u.Scheme == "http" {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && !ip.IsLoopback() {
			return nil, errors.New("plain http leads to another machine; use https")
		}
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			host, _, err := net.SplitHostPort(address)
			if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
				return errors.New("plain http leads to another machine")
			}
			return nil
		}
	}
	return &endpoint{url: to, token: token, timeout: timeout, client: &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// post sends a question and reads the whole answer. Its errors hold nothing of
// what went over the wire, and not the URL, which may hold a secret.
func (e *endpoint) post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("no request can be made")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "airlock-policy-http/"+version)
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the endpoint cannot be asked: %w", cause(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the endpoint answered with %d", resp.StatusCode)
	case err != nil:
		return nil, fmt.Errorf("the endpoint's answer broke off: %w", cause(err))
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("the endpoint answered with more than %d bytes", maxAnswer)
	case kind != "application/json":
		return nil, errors.New("the endpoint's answer is not application/json")
	}
	return text, nil
}

// cause is the error without the URL that net/http puts before it.
func cause(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
