package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// watchChild writes down how a cell's init ends, which launch reaps.
func (d *Driver) watchChild(in *instance, k cellKey, c *child) {
	written := d.watch(k, true)
	go func() {
		<-c.done
		ws, ok := c.state.Sys().(syscall.WaitStatus)
		d.writeEnd(in, k, ws, ok)
		d.unwatch(k, written)
	}()
}

// watchOther waits for the end of a cell that another driver process started.
func (d *Driver) watchOther(in *instance, r *record) {
	k := r.key()
	written := d.watch(k, false)
	if written == nil {
		return
	}
	h, err := proc.Open(r.Process)
	if err != nil {
		d.unwatch(k, written)
		return
	}
	go func() {
		defer d.unwatch(k, written)
		defer h.Close()
		if err := h.Wait(context.Background()); err != nil {
			d.log.Warn("cannot wait for the end of a cell", "cell", k.id, "error", err)
			return
		}
		ws, ok := h.ExitStatus()
		d.writeEnd(in, k, ws, ok)
	}()
}

// watch puts a cell on the list of those whose end somebody waits for; nil =
// it is on it already, and replace is not set.
func (d *Driver) watch(k cellKey, replace bool) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched[k] != nil && !replace {
		return nil
	}
	written := make(chan struct{})
	d.watched[k] = written
	return written
}

func (d *Driver) unwatch(k cellKey, written chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched[k] == written {
		delete(d.watched, k)
	}
	close(written)
}

// awaitEnd waits until the end of a cell that was seen dead is written down,
// should somebody be about to do it.
func (d *Driver) awaitEnd(ctx context.Context, k cellKey) {
	d.mu.Lock()
	written := d.watched[k]
	d.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// adoptAll takes up the cells that an earlier driver process has left.
func (d *Driver) adoptAll(in *instance) error {
	ids, err := in.known()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if r, err := in.load(id); err == nil && r.End == nil && r.Process.PID != 0 {
			d.watchOther(in, r)
		}
	}
	return nil
}

// writeEnd writes down how a cell's init has ended, unless that is known or
// the record is gone. A Create that has not finished cleans up by itself.
func (d *Driver) writeEnd(in *instance, k cellKey, ws syscall.WaitStatus, known bool) {
	d.mu.Lock()
	stopping := d.stopping[k] > 0
	d.mu.Unlock()
	d.records.Lock()
	defer d.records.Unlock()
	r, err := in.load(k.id)
	if err != nil || r.key() != k || r.End != nil || !r.Ready {
		return
	}
	r.End = &end{At: d.now().UTC()}
	r.End.Reason, r.End.Detail = reason(r, ws, known, stopping)
	if err := in.save(r); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.Warn("cannot write down the end of a cell", "cell", r.CellID, "error", err)
	}
}

// reason says why a cell ended from what is known of its init.
func reason(r *record, ws syscall.WaitStatus, known, stopping bool) (pluginv1.ExitReason, string) {
	oom := uint64(0)
	if r.Groups != nil {
		oom = r.Groups.OOMKills()
	}
	switch {
	case stopping:
		return pluginv1.ExitReason_EXIT_REASON_KILLED, "stopped by the host"
	case known && ws.Exited():
		return pluginv1.ExitReason_EXIT_REASON_EXITED, fmt.Sprintf("the cell agent ended with code %d", ws.ExitStatus())
	case oom > 0 && (!known || ws.Signal() == syscall.SIGKILL):
		return pluginv1.ExitReason_EXIT_REASON_OOM, fmt.Sprintf("the kernel killed %d processes of the cell for memory, its agent among them", oom)
	case known:
		return pluginv1.ExitReason_EXIT_REASON_KILLED, fmt.Sprintf("the cell agent was ended by signal %d (%v) from outside", int(ws.Signal()), ws.Signal())
	}
	return pluginv1.ExitReason_EXIT_REASON_LOST, "the cell agent is gone; it ended while no driver watched it"
}
