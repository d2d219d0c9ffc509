package conformance

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// RevokerProcess is a revoker plugin in a process of its own that can be
// killed and started again, for the tests of whoever writes one. A test binary
// can be its own plugin: when the environment has plugin.MagicCookieKey, its
// TestMain calls main instead of running tests.
type RevokerProcess struct {
	path, dir string
	configure *pluginv1.ConfigureRequest

	mu      sync.Mutex
	process *Process
	logs    logBuffer
}

// StartRevoker starts the plugin at a path and configures it. dir is an
// existing directory for sockets; keep its path short. End it with Stop.
func StartRevoker(ctx context.Context, path, dir string, configure *pluginv1.ConfigureRequest) (*RevokerProcess, error) {
	p := &RevokerProcess{path: path, dir: dir, configure: configure}
	if err := p.start(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *RevokerProcess) start(ctx context.Context) error {
	started, err := Launch(ctx, p.path, LaunchOptions{Dir: p.dir, Log: &p.logs})
	if err != nil {
		return fmt.Errorf("%w; it said: %s", err, p.logs.String())
	}
	p.mu.Lock()
	p.process = started
	p.mu.Unlock()
	if _, err := started.Plugin().Configure(ctx, proto.Clone(p.configure).(*pluginv1.ConfigureRequest)); err != nil {
		return fmt.Errorf("configure the plugin: %w", err)
	}
	return nil
}

// Revoker is a client of the process that runs now.
func (p *RevokerProcess) Revoker() pluginv1.RevokerClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pluginv1.NewRevokerClient(p.process.Conn)
}

// Plugin is a client of the process that runs now.
func (p *RevokerProcess) Plugin() pluginv1.PluginClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.Plugin()
}

// Logs is all that the plugin has written to standard error, in every process.
func (p *RevokerProcess) Logs() string { return p.logs.String() }

// Restart kills the process with SIGKILL and starts the next; it is made for
// RevokerOptions.Restart.
func (p *RevokerProcess) Restart(ctx context.Context) (pluginv1.RevokerClient, error) {
	p.Stop()
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p.Revoker(), nil
}

// Stop kills the process and waits for its end.
func (p *RevokerProcess) Stop() {
	p.mu.Lock()
	process := p.process
	p.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// logBuffer collects what a process writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
