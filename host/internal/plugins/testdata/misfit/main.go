// Command misfit is every plugin that a host must survive. It goes wrong in
// the way that the name says under which it was started:
// airlock-isolation-WAY.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/fake"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/revoker"
)

func main() {
	way := strings.TrimPrefix(filepath.Base(os.Args[0]), "airlock-isolation-")
	m := &misfit{Driver: fake.NewDriver(), way: way}
	switch way {
	case "exits-early":
		fmt.Fprintln(os.Stderr, "no engine at /var/run/engine.sock\x1b[31m")
		os.Exit(3)
	case "killed-early":
		_ = exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -9 %d", os.Getpid())).Run()
	case "junk":
		fmt.Println("Welcome to \x1b[31mthe plugin!")
		time.Sleep(time.Hour)
	case "silent":
		fmt.Fprintln(os.Stderr, "waiting for a licence server")
		time.Sleep(time.Hour)
	case "half-line":
		fmt.Print("1|1|unix|/tmp/x")
		time.Sleep(time.Hour)
	case "closes-stdout":
		os.Stdout.Close()
		time.Sleep(time.Hour)
	case "leaves-child":
		child := exec.Command("/bin/sleep", "5")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		_ = child.Start()
		os.Exit(4)
	case "wrong-core":
		fmt.Println("7|1|unix|/tmp/x|grpc|")
		time.Sleep(time.Hour)
	case "no-tls":
		fmt.Printf("1|1|unix|%s/x|grpc|\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	case "foreign-socket":
		fmt.Printf("1|1|unix|/tmp/elsewhere|grpc|%s\n", strings.Repeat("A", 100))
		time.Sleep(time.Hour)
	case "wrong-magic":
		other := plugin.Handshake()
		other.MagicCookieValue = "of another program"
		goplugin.Serve(&goplugin.ServeConfig{HandshakeConfig: other, Plugins: goplugin.PluginSet{"x": bare{}}, GRPCServer: goplugin.DefaultGRPCServer})
	case "wrong-protocol":
		other := plugin.Handshake()
		other.ProtocolVersion = 99
		goplugin.Serve(&goplugin.ServeConfig{HandshakeConfig: other, Plugins: goplugin.PluginSet{"x": bare{}}, GRPCServer: goplugin.DefaultGRPCServer})
	case "wrong-kind":
		revoker.Serve(fake.NewRevoker())
	case "stops-after-handshake":
		socket := os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x"
		_, _ = net.Listen("unix", socket)
		cert, _, _ := plugin.NewCertificate()
		fmt.Printf("1|1|unix|%s|grpc|%s\n", socket, base64.RawStdEncoding.EncodeToString(cert.Certificate[0]))
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "prints":
		before := os.Stdout
		go func() {
			// From the moment in which Serve has taken standard output over.
			for os.Stdout == before {
				time.Sleep(time.Microsecond)
			}
			for n := 0; ; n++ {
				fmt.Printf("printed %d\n", n)
				_, _ = syscall.Write(1, []byte("written\n"))
				time.Sleep(time.Millisecond)
			}
		}()
	}
	isolation.Serve(m)
}

// bare is a plugin of some other program.
type bare struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (bare) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

func (bare) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

type misfit struct {
	*fake.Driver
	way string
}

func (m *misfit) Describe() *pluginv1.DescribeResponse {
	d := m.Driver.Describe()
	switch m.way {
	case "wrong-name":
		d.Name = "something\x1b[0m-else"
	case "wrong-contract":
		d.Contracts = []string{"airlock.plugin.v9"}
	case "dies-in-describe":
		os.Exit(9)
	}
	return d
}

func (m *misfit) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error {
	switch m.way {
	case "refuses":
		return plugin.FailedPrecondition("the engine is too old\nsecond line")
	case "killed-in-configure":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "dies-in-configure":
		panicElsewhere("configure is not for me")
	case "crash-loop":
		go func() {
			time.Sleep(20 * time.Millisecond)
			panicElsewhere("I cannot go on")
		}()
	case "noisy":
		go noise()
	case "flood":
		go flood()
	}
	return m.Driver.Configure(ctx, req)
}

func (m *misfit) Inspect(ctx context.Context, req *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	if m.way == "big" {
		return &pluginv1.InspectResponse{Status: &pluginv1.CellStatus{Detail: strings.Repeat("x", 100<<20)}}, nil
	}
	if m.way == "prints" {
		fmt.Println("printed while serving")
	}
	return m.Driver.Inspect(ctx, req)
}

func (m *misfit) List(req *pluginv1.ListRequest, stream grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
	if m.way == "big" {
		return stream.Send(&pluginv1.ListResponse{Labels: map[string]string{"x": strings.Repeat("x", 100<<20)}})
	}
	return m.Driver.List(req, stream)
}

// panicElsewhere ends the process as a panic outside of a handler does.
func panicElsewhere(words string) {
	go panic(words)
	select {}
}

// noise is log lines that try to be something else.
func noise() {
	for _, line := range []string{
		"\x1b[2J\x1b[31mred alert\x07",
		"broken \xff\xfe utf-8",
		`{"@level":"error","@message":"forged\nline","@timestamp":"2001-01-01T00:00:00Z","plugin":"isolation.other.one","@module":"host","password":"p"}`,
		`{"@message":5,"@level":["x"]}`,
		`{"@level":"info","@message":"deep","x":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + "}",
		strings.Repeat("long ", 1<<18),
		"the end",
	} {
		_, _ = syscall.Write(2, []byte(line+"\n"))
	}
}

func flood() {
	line := append(bytes.Repeat([]byte("flood "), 20), '\n')
	for {
		for range 100 {
			_, _ = syscall.Write(2, line)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
