package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func (l *loader) runtimeOptions(add func(Check)) RuntimeOptions {
	o := RuntimeOptions{
		Mission: l.opts.Mission, Timeout: l.opts.Timeout, Only: l.opts.Only, Progress: add, Changed: l.changed(),
		Secrets: l.configSecrets(),
		Restart: func(ctx context.Context) (pluginv1.RuntimeClient, error) {
			p, err := l.restarted(ctx)
			if err != nil {
				return nil, err
			}
			return pluginv1.NewRuntimeClient(p.Conn), nil
		},
	}
	return o
}

// changed compares what the plugin has on disk, and its child processes, with
// the last look.
func (l *loader) changed() func() error {
	var before map[string]bool
	return func() error {
		now, err := l.files()
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, p := range l.live {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID(), p.PID()))
			if err == nil && strings.TrimSpace(string(b)) != "" {
				now["children "+string(b)] = true
			}
		}
		l.mu.Unlock()
		was := before
		if before = now; was != nil && !maps.Equal(was, now) {
			return fmt.Errorf("files and child processes are %v, and were %v", now, was)
		}
		return nil
	}
}

// revoker runs the revoker kit. Without an issuer in the caller's hands most of
// it is not declared, which is said.
func (l *loader) revoker(ctx context.Context, p *Process, add func(Check)) {
	o := RevokerOptions{
		HostID: hostID, Features: l.describe.GetFeatures(), Request: l.opts.GrantRequest, Issuer: l.opts.Issuer,
		Logs: func() string { return string(l.log.bytes()) }, Secrets: l.configSecrets(), Timeout: l.opts.Timeout, Only: l.opts.Only,
		Restart: func(ctx context.Context) (pluginv1.RevokerClient, error) {
			p, err := l.restarted(ctx)
			if err != nil {
				return nil, err
			}
			return pluginv1.NewRevokerClient(p.Conn), nil
		},
	}
	for _, c := range Revoker(ctx, pluginv1.NewRevokerClient(p.Conn), o) {
		add(c)
	}
}

// policy runs the policy kit. Without a judge in the caller's hands the checks
// of what the plugin makes of one are not declared, which is said.
func (l *loader) policy(ctx context.Context, p *Process, add func(Check)) {
	o := PolicyOptions{
		Judge: l.opts.Judge, Logs: func() string { return string(l.log.bytes()) }, Timeout: l.opts.Timeout, Only: l.opts.Only,
		Restart: func(ctx context.Context) (pluginv1.PolicyClient, error) {
			p, err := l.restarted(ctx)
			if err != nil {
				return nil, err
			}
			return pluginv1.NewPolicyClient(p.Conn), nil
		},
	}
	for _, c := range Policy(ctx, pluginv1.NewPolicyClient(p.Conn), o) {
		add(c)
	}
}

// configSecrets are the sensitive values of the configuration, but for those
// that are too short to be found by chance only.
func (l *loader) configSecrets() (out []string) {
	var values map[string]any
	_ = json.Unmarshal(l.config, &values) // it was accepted
	for _, a := range l.describe.GetSchema().GetAttributes() {
		if v, ok := values[a.GetName()].(string); ok && a.GetSensitive() && len(v) >= 6 {
			out = append(out, v)
		}
	}
	return out
}
