package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client talks to one host.
type client struct {
	base  string // http(s)://host:port; of the operator socket a name only
	where string // for messages
	token string
	http  *http.Client
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	tls   *tls.Config
}

// fallback is where the host is when nothing says otherwise.
const fallback = "127.0.0.1:8122"

// client finds the host. close must be called at the end.
func (a *app) client() (c *client, close func(), err error) {
	token, err := a.token()
	if err != nil {
		return nil, nil, err
	}
	addr := a.addr
	if addr == "" {
		addr = a.getenv("AIRLOCK_ADDR")
	}
	if addr == "" {
		if addr, _, err = a.sidecar(); err != nil {
			return nil, nil, err
		}
	}
	if addr == "" {
		addr = fallback
		conn, err := net.DialTimeout("unix", a.socket, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		// A socket that lets others in only is worth a word, unless there is a
		// token to try.
		if err == nil || errors.Is(err, os.ErrPermission) && token == "" {
			addr = a.socket
		}
	}
	if c, err = newClient(addr, token); err != nil {
		return nil, nil, err
	}
	if err := c.trust(a.getenv("AIRLOCK_CACERT")); err != nil {
		return nil, nil, err
	}
	tr := &http.Transport{DialContext: c.dial, TLSClientConfig: c.tls, ResponseHeaderTimeout: 3 * time.Minute}
	c.http = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, tr.CloseIdleConnections, nil
}

// withHost makes a command's body of one that talks to a host.
func (a *app) withHost(run func(cmd *cobra.Command, args []string, c *client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		return run(cmd, args, c)
	}
}

// token is the operator's token; it never is on the command line.
func (a *app) token() (string, error) {
	if a.tokenFile != "" {
		text, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	for _, name := range []string{"AIRLOCK_TOKEN", "SIDECAR_OPERATOR_TOKEN"} {
		if t := strings.TrimSpace(a.getenv(name)); t != "" {
			return t, nil
		}
	}
	return "", nil
}

// sidecar takes SIDECAR_ENDPOINT apart, a task's URL as seed 003 names it.
func (a *app) sidecar() (addr, task string, err error) {
	text := a.getenv("SIDECAR_ENDPOINT")
	if text == "" {
		return "", "", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", "", fmt.Errorf("SIDECAR_ENDPOINT is not a task's URL such as http://127.0.0.1:8122/tasks/ID")
	}
	id, ok := strings.CutPrefix(strings.TrimSuffix(u.EscapedPath(), "/"), "/tasks/")
	if task, err = url.PathUnescape(id); err != nil || !ok || id == "" || strings.Contains(id, "/") {
		return "", "", fmt.Errorf("SIDECAR_ENDPOINT is not a task's URL such as http://127.0.0.1:8122/tasks/ID")
	}
	return u.Scheme + "://" + u.Host, task, nil
}

// task is the task that a command is about: its argument or SIDECAR_ENDPOINT's.
func (a *app) task(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	_, task, err := a.sidecar()
	return task, err
}

func newClient(addr, token string) (*client, error) {
	var d net.Dialer
	if path, ok := strings.CutPrefix(addr, "unix:"); ok || strings.HasPrefix(addr, "/") || strings.HasPrefix(addr, "./") {
		if !ok {
			path = addr
		}
		if p, ok := strings.CutPrefix(path, "//"); ok {
			path = p
		}
		return &client{base: "http://localhost", where: path, token: token, dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}}, nil
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, errors.New("the host's address must be http://HOST:PORT, HOST:PORT or the path of a socket")
	}
	base := u.Scheme + "://" + u.Host
	return &client{base: base, where: base, token: token, dial: d.DialContext}, nil
}

// trust adds a certificate authority (AIRLOCK_CACERT).
func (c *client) trust(file string) error {
	if file == "" {
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("AIRLOCK_CACERT: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("AIRLOCK_CACERT: %s has no certificate in it", file)
	}
	c.tls = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return nil
}

// segment encodes an id as one path segment; dots too, so that nothing on the
// way takes them for directories.
func segment(id string) string {
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// open makes a request and gives the answer when it is a success; the caller
// closes its body. body nil: none, else it is sent as JSON.
func (c *client) open(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode >= 300 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.refused(resp)
	}
	return resp, nil
}

// call is open that reads the answer.
func (c *client) call(ctx context.Context, method, path string, body any, header ...string) ([]byte, error) {
	resp, err := c.open(ctx, method, path, body, header...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer of %s broke off: %w", c.where, err)
	}
	return text, nil
}

// get reads a JSON answer into v and gives it as it came, too.
func (c *client) get(ctx context.Context, path string, v any) ([]byte, error) {
	text, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("the answer of %s to %s is not what this version knows: %w", c.where, path, err)
	}
	return text, nil
}

// unreachable says why there was no answer.
func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	if errors.Is(err, os.ErrPermission) {
		return failf(ExitNotAllowed, "the operator socket %s lets only its operators in: list your uid in an operator block (uids), or use --addr and AIRLOCK_TOKEN", c.where)
	}
	return failf(ExitFailed, "no host answers at %s: is `airlock serve` running? --addr or AIRLOCK_ADDR says where it is (%w)", c.where, err)
}

// refused turns the host's refusal into an error with its exit code.
func (c *client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var p struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &p) != nil || p.Error == "" {
		p.Error = http.StatusText(resp.StatusCode)
	}
	p.Error = printable(p.Error)
	code := exitOf(resp.StatusCode)
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		if c.token == "" {
			return failf(ExitNotAllowed, "%s: %s\nset AIRLOCK_TOKEN or --token-file to an operator's token", c.where, p.Error)
		}
		return failf(ExitNotAllowed, "%s does not take this token: %s", c.where, p.Error)
	case http.StatusForbidden, http.StatusTooManyRequests:
		return failf(code, "not allowed: %s", p.Error)
	}
	if code == ExitFailed {
		return failf(code, "%s (status %d)", p.Error, resp.StatusCode)
	}
	return failf(code, "%s", p.Error)
}

// exitOf is the exit code that a status of the host stands for.
func exitOf(status int) int {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return ExitNotAllowed
	case http.StatusNotFound:
		return ExitNotFound
	case http.StatusConflict:
		return ExitConflict
	case http.StatusGatewayTimeout:
		return ExitTimedOut
	default:
		return ExitFailed
	}
}

// named puts what was looked for into a "not found".
func named(err error, what, id string) error {
	var e *exitError
	if errors.As(err, &e) && e.code == ExitNotFound {
		return failf(ExitNotFound, "there is no %s %q", what, id)
	}
	return err
}
