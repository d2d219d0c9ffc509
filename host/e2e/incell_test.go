package e2e

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inCell is the workload of the gateway's tests: this test's own program, run
// in a cell. Its answers go into files of the workspace.
func inCell(args []string) int {
	answer := ""
	switch args[0] {
	case "get": // get FILE URL: through the proxy of the environment
		proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
		if err != nil || proxy.Host == "" {
			answer = "no proxy"
			break
		}
		answer = ask(&http.Transport{Proxy: http.ProxyURL(proxy)}, args[2], "")
	case "direct": // direct FILE HOST:PORT
		answer = ask(&http.Transport{}, "http://"+args[2], "")
	case "call": // call FILE BASE BODY: a model API
		answer = ask(&http.Transport{}, args[2]+"/v1/messages", args[3])
	case "socket": // socket FILE PATH BODY: a model API, at a unix socket
		answer = ask(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", args[2])
		}}, "http://gateway/v1/messages", args[3])
	case "nested": // nested FILE CLAUDE
		answer = nested(args[2])
	case "mcp": // mcp FILE
		answer = cellFlow()
	case "mcp-gone": // mcp-gone FILE
		answer = goneFlow()
	case "hunt": // hunt FILE REVERSED: look for a secret wherever a workload can
		answer = hunt(reversed(args[2]))
	default:
		return 2
	}
	if err := os.WriteFile(args[1]+".new", []byte(answer), 0o644); err != nil {
		return 1
	}
	if err := os.Rename(args[1]+".new", args[1]); err != nil {
		return 1
	}
	return 0
}

func ask(t *http.Transport, to, body string) string {
	defer t.CloseIdleConnections()
	c := &http.Client{Transport: t, Timeout: 2 * time.Minute}
	var resp *http.Response
	var err error
	if body == "" {
		resp, err = c.Get(to)
	} else {
		req, _ := http.NewRequest("POST", to, strings.NewReader(body))
		req.Header.Set("X-Api-Key", "placeholder-of-the-mission")
		resp, err = c.Do(req)
	}
	if err != nil {
		return "error " + err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Sprintf("%d broken %v %s", resp.StatusCode, err, text)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

// hunt looks through the environment, every process and every file of the
// agent's that can be read.
func hunt(secret string) string {
	found := []string{}
	looked := 0
	look := func(name string, text []byte) {
		looked++
		if strings.Contains(string(text), secret) {
			found = append(found, name)
		}
	}
	look("environment", []byte(strings.Join(os.Environ(), "\n")))
	for _, glob := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		list, _ := filepath.Glob(glob)
		for _, p := range list {
			if text, err := os.ReadFile(p); err == nil {
				look(p, text)
			}
		}
	}
	for _, dir := range []string{"/run", "/workspace", os.Getenv("HOME"), os.Getenv("AIRLOCK_GATEWAY_DIR")} {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if i, err := d.Info(); err == nil && i.Size() < 1<<20 {
					if text, err := os.ReadFile(p); err == nil {
						look(p, text)
					}
				}
			}
			return nil
		})
	}
	return fmt.Sprintf("looked %d found %q", looked, found)
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// armed puts the program into the workspace; the script calls it "$P".
func (r *rig) armed(script string) string {
	r.t.Helper()
	tool := filepath.Join(r.work, "in-cell")
	if _, err := os.Stat(tool); err != nil {
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			r.t.Fatal(err)
		}
		write(r.t, tool, string(self), 0o755)
	}
	return `P="./in-cell in-cell"; ` + script
}

// result waits for a file of the workspace.
func (r *rig) result(name string) string {
	r.t.Helper()
	var text []byte
	r.until("the mission has written "+name, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(r.work, name))
		return err == nil
	})
	return string(text)
}

// listenHTTP is a server of the test, on loopback of the host.
func listenHTTP(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return l.Addr().String()
}
