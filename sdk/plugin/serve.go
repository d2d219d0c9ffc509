package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// gcPercent keeps a plugin small: a host runs several, and they are idle most
// of the time.
const gcPercent = 25

// Serve runs a plugin until its host ends it. Call it from main, through the
// Serve of the kind's own package; nothing may be printed to standard output
// before. register puts the kind's service on the server.
//
// It sees to what a plugin process needs: nothing but the handshake reaches
// the host on standard output, SIGPIPE and a terminal's ^C do not end the
// process, the end of the host does, and a panic in a method does not.
func Serve(kind pluginv1.Kind, base Base, register func(grpc.ServiceRegistrar)) {
	if os.Getenv(MagicCookieKey) != MagicCookieValue {
		d := base.Describe()
		fmt.Fprintf(os.Stderr, "This is the Airlock plugin %s %s. It is not meant to be run by hand: put it into the\n"+
			"host's plugin directory, or check it with `airlock plugin test %s`.\n",
			d.GetName(), d.GetVersion(), os.Args[0])
		os.Exit(1)
	}
	debug.SetGCPercent(gcPercent)
	quietSignals()
	var identity *tls.Config
	var certificate string
	if hostPEM := os.Getenv(ClientCertEnv); hostPEM != "" {
		var err error
		if identity, certificate, err = serverTLS(hostPEM); err != nil {
			fmt.Fprintf(os.Stderr, "cannot make a certificate: %v\n", err)
			os.Exit(1)
		}
	}
	if err := guardStdout(certificate); err != nil {
		fmt.Fprintf(os.Stderr, "cannot protect standard output: %v\n", err)
		os.Exit(1)
	}
	go watchParent(os.Exit)

	log := Logger("sdk")
	log.SetLevel(hclog.Warn)
	goplugin.Serve(&goplugin.ServeConfig{
		TLSProvider:     func() (*tls.Config, error) { return identity, nil },
		HandshakeConfig: Handshake(),
		Logger:          log,
		Plugins: goplugin.PluginSet{SetName: &set{register: func(s grpc.ServiceRegistrar) {
			RegisterBase(s, kind, base)
			register(s)
		}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, ServerOptions(log)...)...)
		},
	})
}

// quietSignals catches instead of ignoring: an ignored signal stays ignored in
// whatever the plugin starts, and a workload without SIGPIPE misbehaves.
func quietSignals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGINT)
	go func() {
		for range caught {
		}
	}()
}

// set makes go-plugin carry the services.
type set struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

func (p *set) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if p.register == nil {
		return errors.New("this is the host's side of the set")
	}
	p.register(s)
	return nil
}

func (p *set) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("the host uses the connection itself")
}

// ClientSet is the plugin set that a host gives to go-plugin; the host then
// takes the gRPC connection itself.
func ClientSet() goplugin.PluginSet {
	return goplugin.PluginSet{SetName: &set{}}
}
