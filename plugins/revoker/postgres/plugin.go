package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	hclog "github.com/hashicorp/go-hclog"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/revoker"
)

// name and version of the plugin.
const (
	name    = "postgres"
	version = "0.1.0"
)

// postgres is the plugin.
type postgres struct {
	plugin.Defaults
	revoker.Unimplemented

	log     hclog.Logger
	current atomic.Pointer[instance] // nil: not configured

	mu   sync.Mutex
	stop func() // ends the watch on the server; nil: there is none
}

// instance is a configuration and where its state lies.
type instance struct {
	*settings
	*state
}

func newPostgres() *postgres { return &postgres{log: plugin.Logger(name)} }

// Describe says what the plugin is.
func (*postgres) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_REVOKER, Name: name, Version: version, Contracts: []string{plugin.Contract},
		Features: []string{revoker.FeatureGrants},
		Summary:  "Gives each mission a PostgreSQL role of its own, and takes it away with all its sessions.",
		Schema:   schema(),
		Needs: []*pluginv1.Need{
			{What: "host", Value: "the host of the server", Reason: "to make and drop roles"},
			{What: "path", Value: "state_dir", Reason: "for the key that passwords are derived from, and the records of grants"},
		},
	}
}

func (p *postgres) configured() (*instance, error) {
	i := p.current.Load()
	if i == nil {
		return nil, plugin.FailedPrecondition("the plugin is not configured")
	}
	return i, nil
}

// Shutdown ends the watch.
func (p *postgres) Shutdown(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	return nil
}

// Between two looks at the server.
const (
	lookWhenWell = time.Minute
	lookWhenIll  = 5 * time.Second
)

// watch looks at the server from time to time and says how it is.
func (p *postgres) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.stop = func() { cancel(); <-done }
	p.Health().Degraded("the server has not been looked at yet", nil)
	go func() {
		defer close(done)
		for {
			wait := lookWhenWell
			if !p.probe(ctx) {
				wait = lookWhenIll
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}()
}

// probe looks at the server once.
func (p *postgres) probe(ctx context.Context) (well bool) {
	i := p.current.Load()
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	version, why := i.inspect(ctx)
	switch {
	case ctx.Err() == context.Canceled: // somebody else looks now
	case why != "":
		p.Health().Unavailable(why, map[string]string{"server": i.Host})
	default:
		p.Health().Healthy(map[string]string{"server": i.Host, "version": version})
	}
	return why == ""
}

func (s *settings) inspect(ctx context.Context) (version, why string) {
	conn, err := s.connect(ctx, s.Database)
	if err != nil {
		return "", "the server cannot be reached: " + words(err)
	}
	defer closing(conn, s)
	var standby, able bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(),
		rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user`).Scan(&version, &standby, &able)
	if err != nil {
		return "", "the server cannot be asked: " + words(err)
	}
	if standby {
		return version, "the server is a standby: it can make and drop no roles"
	}
	if !able {
		return version, "the role " + s.User + " has neither SUPERUSER nor CREATEROLE"
	}
	var missing []string
	err = conn.QueryRow(ctx, `SELECT coalesce(array_agg(n), '{}') FROM unnest($1::text[]) n
		WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = n)`, s.Roles).Scan(&missing)
	if err != nil {
		return version, "the server cannot be asked: " + words(err)
	}
	if len(missing) > 0 {
		return version, "the role " + missing[0] + " does not exist"
	}
	return version, ""
}
