package driver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/guest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/qmp"
	"github.com/airlock-host/airlock/sdk/cell"
)

// Names in a cell's directory.
const (
	qmpSocket = "qmp.sock"
	ctlSocket = "ctl.sock"
	runName   = "run" // the helper's: it belongs to the cell's uid
	upperName = "upper.ext4"
	qemuLog   = "qemu.log"
	helperLog = "helper.log"
)

func (in *instance) runDir(id string) string { return filepath.Join(in.cellDir(id), runName) }
func (in *instance) upper(id string) string  { return filepath.Join(in.cellDir(id), upperName) }

// dial connects to a socket whose path may be longer than a socket's name can
// be.
func dial(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// qmp opens QEMU's monitor, for a few commands: while it is open nobody else
// can use it, a new driver process neither.
func (in *instance) qmp(ctx context.Context, id string) (*qmp.Client, error) {
	return in.qmpEvents(ctx, id, nil)
}

func (in *instance) qmpEvents(ctx context.Context, id string, events func(qmp.Event)) (*qmp.Client, error) {
	c, err := dial(ctx, in.cellDir(id), qmpSocket)
	if err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	return qmp.Open(ctx, c, events)
}

// askQEMU bounds a question to QEMU.
const askQEMU = 10 * time.Second

// runState is how QEMU says a VM is.
func (in *instance) runState(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askQEMU)
	defer cancel()
	q, err := in.qmp(ctx, id)
	if err != nil {
		return "", err
	}
	defer q.Close()
	return q.State(ctx)
}

// control opens a VM's control port.
func (in *instance) control(ctx context.Context, id string) (*guest.Conn, error) {
	c, err := dial(ctx, in.cellDir(id), ctlSocket)
	if err != nil {
		return nil, fmt.Errorf("the VM's control port: %w", err)
	}
	return guest.New(c), nil
}

// listen makes a socket and gives its listening descriptor, to be passed on.
func listen(path string) (*os.File, error) {
	l, err := cell.ListenUnix(path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}
