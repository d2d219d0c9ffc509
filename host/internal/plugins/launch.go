package plugins

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// maxSocketDir keeps <dir>/plugin-dirNNNNNNNNNN/pluginNNNNNNNNNN within the 107
// bytes that a unix socket's path may have.
const maxSocketDir = 107 - len("/plugin-dir4294967295/plugin4294967295")

// launch starts an image and connects to it. The image stays the caller's.
func (c *Catalog) launch(ctx context.Context, spec config.Instance, img *image) (*process, *Fault) {
	if fault := ctxFault(ctx); fault != nil {
		return nil, fault
	}
	p := &process{
		image: img, forker: c.forker, timeout: c.deadlines.Start,
		logs:   newLogs(c.log.With("plugin", spec.Ref())),
		reaped: make(chan struct{}), exited: make(chan struct{}),
	}
	if spec.Kind != config.KindIsolation {
		p.uid = c.uid(spec)
		// A driver's limits would be those of all that it starts.
		p.limits = []rlimit{{unix.RLIMIT_NOFILE, 4096}, {unix.RLIMIT_CORE, 0}}
	}
	// go-plugin's AutoMTLS, but with a key that costs less; see NewCertificate.
	cert, certPEM, err := plugin.NewCertificate()
	if err != nil {
		return nil, faultf(HostTrouble, "no certificate for %s: %v", spec.Ref(), err).retry()
	}
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  plugin.Handshake(),
		Plugins:          plugin.ClientSet(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{cert},
			MinVersion:   tls.VersionTLS12,
			ServerName:   "localhost",
			RootCAs:      x509.NewCertPool(), // replaced by the plugin's own, from its handshake
		},
		SkipHostEnv:      true,
		StartTimeout:     c.deadlines.Start,
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       p.logs,
		SyncStderr:       p.logs,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: c.socketDir},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			p.env, p.socketDir = append(cmd.Env, c.env...), dir
			p.env = append(p.env, plugin.ClientCertEnv+"="+string(certPEM))
			if p.uid != nil {
				return p, os.Chown(dir, int(p.uid.uid), int(p.uid.gid))
			}
			return p, nil
		},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(plugin.MaxMessageBytes), grpc.MaxCallSendMsgSize(plugin.MaxMessageBytes),
		)},
	})
	p.client = client
	defer context.AfterFunc(ctx, func() { p.kill("the start was given up") })()
	if fault := p.connect(client); fault != nil {
		p.discard()
		return nil, fault
	}
	return p, nil
}

// connect does go-plugin's part. Its Client waits without a limit for a plugin
// that has stopped after the handshake, so a timer ends the process then.
func (p *process) connect(client *goplugin.Client) *Fault {
	if _, err := client.Start(); err != nil {
		var fault *Fault
		if errors.As(err, &fault) {
			return fault
		}
		return p.trouble(err)
	}
	late := time.AfterFunc(p.timeout, func() { p.kill("it did not answer after its handshake") })
	protocol, err := client.Client()
	if !late.Stop() {
		return faultf(StartTimeout, "%s gave its handshake and then did not answer within %s", p.image.found.Path, p.timeout).
			words(p.logs.words()).retry()
	}
	if err != nil {
		return faultf(WrongProtocol, "%s cannot be talked to: %v", p.image.found.Path, err).words(p.logs.words()).retry()
	}
	c, ok := protocol.(*goplugin.GRPCClient)
	if !ok {
		return faultf(WrongProtocol, "%s does not serve gRPC", p.image.found.Path)
	}
	p.conn = c.Conn
	return nil
}

// discard kills the process and lets go of everything that belongs to it.
func (p *process) discard() {
	p.endOnce.Do(func() {
		p.kill("")
		if p.pid != 0 {
			<-p.exited
		}
		// After the process is gone: go-plugin's Kill talks to it without a
		// deadline.
		p.client.Kill()
		if p.socketDir != "" {
			_ = os.RemoveAll(p.socketDir)
		}
	})
}

// prepareDirs makes the directories of the catalog. Sockets of an earlier host
// process are removed: their plugins have died with it.
func (c *Catalog) prepareDirs() error {
	for _, dir := range []string{c.options.StateDir, c.options.RunDir} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	c.socketDir = filepath.Join(c.options.RunDir, socketsName)
	if c.options.Beside {
		c.socketDir += strconv.Itoa(os.Getpid())
		c.ownSocketDir = true
	} else if err := c.sweepSockets(); err != nil {
		return err
	}
	if len(c.socketDir) > maxSocketDir {
		dir, err := os.MkdirTemp("/tmp", "airlock-")
		if err != nil {
			return err
		}
		c.socketDir, c.ownSocketDir = dir, true
	}
	if err := os.RemoveAll(c.socketDir); err != nil {
		return err
	}
	mode := os.FileMode(0o700)
	if c.options.UID != nil {
		mode = 0o711
	}
	return os.Mkdir(c.socketDir, mode)
}

// socketsName is the directory of sockets below RunDir, and how those begin that
// were made beside another catalog's.
const socketsName = "s"

// sweepSockets removes the sockets of catalogs that ran beside others.
func (c *Catalog) sweepSockets() error {
	dirs, err := filepath.Glob(filepath.Join(c.options.RunDir, socketsName+"[0-9]*"))
	for _, dir := range dirs {
		if _, bad := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), socketsName)); bad == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// uid is the user that a runtime or revoker plugin runs as; nil: the host's.
func (c *Catalog) uid(spec config.Instance) *ids {
	if c.options.UID == nil || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, ok := c.options.UID(spec)
	if !ok {
		return nil
	}
	return &ids{uid, gid}
}

func ctxFault(ctx context.Context) *Fault {
	if err := ctx.Err(); err != nil {
		return faultf(HostTrouble, "the start was given up: %v", err).retry()
	}
	return nil
}
