package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// startTimeout is how long a plugin may take to its handshake.
const startTimeout = 10 * time.Second

// LaunchOptions say how a plugin is started.
type LaunchOptions struct {
	// Dir is an existing directory for the plugin's socket; keep its path short.
	Dir string
	// Env is added to PATH and LANG, which are all that a host gives.
	Env []string
	// Log takes what the plugin prints to standard error; nil = nowhere.
	Log io.Writer

	bare     bool // without LANG
	noCookie bool // as a person would start it
}

// Process is a plugin that was started as a host starts it: with go-plugin's
// handshake and mutual TLS, standard input empty, and an environment made from
// nothing.
type Process struct {
	// Conn is the connection to it.
	Conn *grpc.ClientConn
	// Handshake is the line that it printed.
	Handshake string

	cmd       *exec.Cmd
	socketDir string
	cert      *tls.Certificate // its own
	ended     chan struct{}

	mu   sync.Mutex
	rest bytes.Buffer // what came on standard output behind the handshake
}

// Launch starts a plugin. End it with Kill.
func Launch(ctx context.Context, path string, o LaunchOptions) (*Process, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	cert, certPEM, err := plugin.NewCertificate()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(path), ended: make(chan struct{})}
	if p.socketDir, err = os.MkdirTemp(o.Dir, "s"); err != nil {
		return nil, err
	}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if !o.bare {
		p.cmd.Env = append(p.cmd.Env, "LANG=C.UTF-8")
	}
	p.cmd.Env = append(p.cmd.Env, o.Env...)
	if !o.noCookie {
		p.cmd.Env = append(p.cmd.Env, plugin.MagicCookieKey+"="+plugin.MagicCookieValue)
	}
	p.cmd.Env = append(p.cmd.Env, "PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR="+p.socketDir,
		plugin.ClientCertEnv+"="+string(certPEM))
	p.cmd.Stderr = o.Log
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = w
	err = p.cmd.Start()
	_ = w.Close()
	if err != nil {
		_, _ = out.Close(), os.RemoveAll(p.socketDir)
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	first := make(chan string, 1)
	go p.read(out, first)
	select {
	case p.Handshake = <-first:
	case <-time.After(startTimeout):
		err = fmt.Errorf("no handshake within %v", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = p.connect(cert)
	}
	if err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// read takes the handshake and everything after it, and then the end.
func (p *Process) read(out io.ReadCloser, first chan<- string) {
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n') // an end without a line is an empty handshake
	first <- line
	buf := make([]byte, 4096)
	for {
		n, err := lines.Read(buf)
		p.mu.Lock()
		if p.rest.Len() < 1<<20 {
			p.rest.Write(buf[:n])
		}
		p.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = out.Close()
	_ = p.cmd.Wait() // how it ended is in ProcessState
	close(p.ended)
}

// connect checks the handshake CORE|PROTOCOL|NETWORK|ADDRESS|grpc|CERTIFICATE
// and dials what it names.
func (p *Process) connect(mine tls.Certificate) error {
	parts := strings.Split(strings.TrimSuffix(p.Handshake, "\n"), "|")
	if len(parts) < 6 || parts[0] != "1" {
		return fmt.Errorf("the first line on standard output is %.200q, which is no handshake of go-plugin with a certificate", p.Handshake)
	}
	if parts[1] != fmt.Sprint(plugin.ProtocolVersion) || parts[2] != "unix" || parts[4] != "grpc" {
		return fmt.Errorf("the handshake names protocol %q, network %q and %q; wanted %d, unix and grpc", parts[1], parts[2], parts[4], plugin.ProtocolVersion)
	}
	if filepath.Dir(filepath.Clean(parts[3])) != filepath.Clean(p.socketDir) {
		return fmt.Errorf("it listens on %s, not in PLUGIN_UNIX_SOCKET_DIR", parts[3])
	}
	der, err := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil {
		return fmt.Errorf("the handshake's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("the handshake's certificate: %w", err)
	}
	p.cert = &tls.Certificate{Certificate: [][]byte{der}, Leaf: leaf}
	p.Conn, err = p.dial(credentials.NewTLS(p.tls(mine)))
	return err
}

// tls trusts nobody but the plugin; mine may be left out.
func (p *Process) tls(mine ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.cert.Leaf)
	return &tls.Config{Certificates: mine, RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

func (p *Process) dial(creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	address := strings.Split(p.Handshake, "|")[3]
	return grpc.NewClient("passthrough:plugin", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(plugin.MaxMessageBytes), grpc.MaxCallSendMsgSize(plugin.MaxMessageBytes)))
}

// Plugin is a client of what every plugin serves.
func (p *Process) Plugin() pluginv1.PluginClient { return pluginv1.NewPluginClient(p.Conn) }

// PID is the plugin's process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdout is what it has printed to standard output behind the handshake.
func (p *Process) Stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rest.String()
}

// Kill ends the plugin with SIGKILL, as a crash would, and waits for it.
func (p *Process) Kill() {
	if p.Conn != nil {
		_ = p.Conn.Close()
	}
	_ = p.cmd.Process.Kill()
	// Something that it has started may hold standard output open.
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
	_ = os.RemoveAll(p.socketDir)
}
