package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxAnswer = 64 << 10 // bytes of an answer's body
	maxHeader = 16 << 10 // bytes of an answer's header
)

// newClient makes a client that goes where it is told and nowhere else: no
// proxy from the environment, no redirects, one connection a request.
func newClient(roots *x509.CertPool, insecure bool) *http.Client {
	dialer := &net.Dialer{}
	plain := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || !insecure && !ip.IsLoopback() {
			return fmt.Errorf("plain http leads to %s, which is another machine", address)
		}
		return nil
	}}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       nil,
			DialContext: plain.DialContext, // of http
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return (&tls.Dialer{NetDialer: dialer, Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(ctx, network, address)
			},
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sign is the value of Airlock-Signature: the time in seconds, and the HMAC of
// "t.body".
func sign(secret, body []byte, now time.Time) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// answer is what the issuer said, once it has said something whole.
type answer struct {
	status int
	body   []byte
}

// failure is a request that did not go well. Its text has no part of what went
// over the wire.
type failure struct {
	why       string
	retryable bool
}

func (f *failure) Error() string { return f.why }

// post sends a signed request and reads the whole answer. key may be empty.
func (s *settings) post(ctx context.Context, to, key string, body []byte, now time.Time) (*answer, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, &failure{why: "no request can be made to " + place(to)}
	}
	// A redirect or a connection that breaks must not send it by itself again.
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "airlock-revoker-webhook/"+version)
	req.Header.Set("Airlock-Signature", sign(s.secret, body, now))
	if key != "" {
		req.Header.Set("Idempotency-Key", headerSafe(key))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, &failure{why: fmt.Sprintf("%s cannot be asked: %s", place(to), cause(err)), retryable: true}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if f := statusFailure(to, resp.StatusCode); f != nil {
		return nil, f
	}
	switch {
	case err != nil:
		return nil, &failure{why: fmt.Sprintf("the answer of %s broke off: %s", place(to), cause(err)), retryable: true}
	case len(got) > maxAnswer:
		return nil, &failure{why: fmt.Sprintf("%s answered with more than %d bytes", place(to), maxAnswer)}
	}
	return &answer{resp.StatusCode, got}, nil
}

// statusFailure is nil for 2xx.
func statusFailure(to string, status int) *failure {
	why := fmt.Sprintf("%s answered with %d %s", place(to), status, http.StatusText(status))
	switch {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return &failure{why: why + "; redirects are not followed"}
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		return &failure{why: why, retryable: true}
	}
	return &failure{why: why}
}

// cause is the error without the URL that net/http puts before it.
func cause(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	case errors.Is(err, context.Canceled):
		return "the call was given up"
	}
	return err.Error()
}

// headerSafe percent-encodes what a header cannot carry. The ids of a host
// have nothing of the kind.
func headerSafe(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
