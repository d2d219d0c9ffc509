// Package plugintest runs a plugin in the process of its own test, over a real
// gRPC connection in memory. It imports sdk/plugin only.
package plugintest

import (
	"context"
	"net"
	"testing"

	hclog "github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// Connect serves what register puts on the server until the test ends, with
// the options of a real plugin, and returns a connection to it:
//
//	conn := plugintest.Connect(t, func(s grpc.ServiceRegistrar) { isolation.Register(s, driver) })
//	client := pluginv1.NewIsolationClient(conn)
func Connect(t testing.TB, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(plugin.ServerOptions(hclog.NewNullLogger())...)
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:plugin",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(plugin.MaxMessageBytes), grpc.MaxCallSendMsgSize(plugin.MaxMessageBytes)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return conn
}
