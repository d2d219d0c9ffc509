package driver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	// dialTime is how long a connection to a socket on this machine may take.
	dialTime = 2 * time.Second
	// idleConns are kept open; more are made when they are needed.
	idleConns = 4
	// callTime bounds a call of the engine that answers at once when it works,
	// also where the host allows more.
	callTime = 20 * time.Second
)

// engine is the connection to one engine, and what is known of it.
type engine struct {
	socket string

	mu   sync.Mutex
	api  *client.Client
	info *system.Info // nil: not known yet
}

func newEngine(socket string) (*engine, error) {
	e := &engine{socket: socket}
	return e, e.renew()
}

// renew makes a new client, which finds out anew what version the engine
// speaks: it may be another one after a restart.
func (e *engine) renew() error {
	dialer := &net.Dialer{Timeout: dialTime}
	transport := &http.Transport{
		MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 30 * time.Second,
		DisableCompression: true,
	}
	api, err := client.New(
		client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}),
		client.WithHost("unix://"+e.socket), client.WithScheme("http"),
		client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", e.socket)
		}),
	)
	if err != nil {
		return err
	}
	e.mu.Lock()
	old := e.api
	e.api, e.info = api, nil
	e.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return nil
}

func (e *engine) close() { _ = e.client().Close() }

func (e *engine) client() *client.Client {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.api
}

func (e *engine) setInfo(i *system.Info) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info = i
}

// known is what the engine says about itself, asked once.
func (e *engine) known(ctx context.Context) (*system.Info, error) {
	e.mu.Lock()
	have := e.info
	e.mu.Unlock()
	if have != nil {
		return have, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	got, err := e.client().Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, e.fault("ask the engine about itself", err)
	}
	if why := unusable(&got.Info); why != "" {
		return nil, plugin.FailedPrecondition("%s", why)
	}
	e.setInfo(&got.Info)
	return &got.Info, nil
}
