package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// config is the host's configuration: no agents, since the agent of this story
// runs outside, and a rule that refunds above 500 need a human.
const config = `
name     = "refund-demo"
data_dir = "%[1]s/data"
run_dir  = "%[1]s/run"
listen {
  rest = "127.0.0.1:0"
  ws   = "127.0.0.1:0"
}
plugins {
  dir  = "%[2]s/plugins"
  lock = "%[1]s/no.lock.hcl"
}
revoker "webhook" "payments" {
  config {
    url    = "%[3]s"
    secret = secret("file:%[1]s/issuer.key")
  }
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
  approve {
    rule "big-refunds" {
      tool   = "refund*"
      when   = args.amount > 500
      reason = "refunds above 500 need a human"
    }
  }
  head {
    file     = "%[1]s/heads/heads.jsonl"
    key_file = "%[1]s/heads/host.key"
  }
}
operator "local-operator" {
  token_file = "%[1]s/operator.token"
  uids       = [%[4]d]
  role       = "operator"
}
`

// host is a host process with a directory of its own.
type host struct {
	dir     string
	token   string // of local-operator
	cmd     *exec.Cmd
	log     *bytes.Buffer
	done    chan error
	socket  *http.Client // the operator socket: it needs no port
	overTCP *http.Client
}

func startHost(ctx context.Context, bin string, iss *issuer) (*host, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(bin, "airlock")); err != nil {
		return nil, fmt.Errorf("there is no host to start, run make build first: %w", err)
	}
	dir, err := os.MkdirTemp("", "alrefund")
	if err != nil {
		return nil, err
	}
	h := &host{dir: dir, token: os.Getenv("SIDECAR_OPERATOR_TOKEN"), log: &bytes.Buffer{}, done: make(chan error, 1), overTCP: &http.Client{Timeout: time.Minute}}
	if h.token == "" {
		h.token = randomHex()
	}
	sock := filepath.Join(dir, "run", "airlock.sock")
	h.socket = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", sock)
	}}}
	for name, text := range map[string]string{"operator.token": h.token, "issuer.key": iss.secret,
		"airlock.hcl": fmt.Sprintf(config, dir, bin, iss.url, os.Getuid())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	h.cmd = exec.Command(filepath.Join(bin, "airlock"), "serve", "--config", filepath.Join(dir, "airlock.hcl")) //nolint:gosec // our own host
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours first
	if err := h.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { h.done <- h.cmd.Wait() }()
	return h, h.ready(ctx)
}

// ready waits until the host answers and has its revoker.
func (h *host) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for {
		var ready struct {
			Ready   bool              `json:"ready"`
			Plugins map[string]string `json:"plugins"`
		}
		err := h.ask(ctx, h.socket, "GET", "http://operator/readyz", nil, &ready)
		if err == nil && ready.Ready && ready.Plugins["revoker.webhook.payments"] == "" {
			return nil
		}
		select {
		case err := <-h.done:
			h.done <- err
			return fmt.Errorf("the host has ended: %w\n%s", err, h.log)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the host is not ready (%v): %w", ready.Plugins, ctx.Err()), err, h.close())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// close ends the host and removes its directory.
func (h *host) close() error {
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-h.done:
		return errors.Join(err, os.RemoveAll(h.dir))
	case <-time.After(time.Minute):
		_ = h.cmd.Process.Kill()
		return errors.Join(errors.New("the host did not end after SIGTERM"), <-h.done, os.RemoveAll(h.dir))
	}
}

// operator is a request of local-operator over HTTP.
func (h *host) operator(ctx context.Context, method, address string, in, out any) error {
	return h.ask(ctx, h.overTCP, method, address, in, out)
}

func (h *host) ask(ctx context.Context, c *http.Client, method, address string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, req.URL.Path, resp.StatusCode, bytes.TrimSpace(text))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
