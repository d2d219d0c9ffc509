package conformance

import (
	"context"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// PolicyProcess is a policy plugin in a process of its own, for the tests of
// whoever writes one; see RevokerProcess.
type PolicyProcess struct{ p *RevokerProcess }

// StartPolicy starts the plugin at a path and configures it. dir is an existing
// directory for sockets; keep its path short. End it with Stop.
func StartPolicy(ctx context.Context, path, dir string, configure *pluginv1.ConfigureRequest) (*PolicyProcess, error) {
	p, err := StartRevoker(ctx, path, dir, configure)
	if err != nil {
		return nil, err
	}
	return &PolicyProcess{p}, nil
}

// Policy is a client of the process that runs now.
func (p *PolicyProcess) Policy() pluginv1.PolicyClient {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	return pluginv1.NewPolicyClient(p.p.process.Conn)
}

// Plugin is a client of the process that runs now.
func (p *PolicyProcess) Plugin() pluginv1.PluginClient { return p.p.Plugin() }

// Logs is all that the plugin has written to standard error, in every process.
func (p *PolicyProcess) Logs() string { return p.p.Logs() }

// Restart kills the process with SIGKILL and starts the next; it is made for
// PolicyOptions.Restart.
func (p *PolicyProcess) Restart(ctx context.Context) (pluginv1.PolicyClient, error) {
	p.p.Stop()
	if err := p.p.start(ctx); err != nil {
		return nil, err
	}
	return p.Policy(), nil
}

// Stop kills the process and waits for its end.
func (p *PolicyProcess) Stop() { p.p.Stop() }
