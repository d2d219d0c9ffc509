package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/airlock-host/airlock/plugins/internal/proc"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/guest"
	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/qmp"
)

// until gives a context that ends with a process.
func until(h *proc.Handle) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_ = h.Wait(context.Background())
	}()
	return ctx
}

// boot sends the VM its setup, which its init reads as soon as it runs, and
// waits for the answer: the cell agent runs. It gives up when QEMU ends, when
// it stops the VM (an internal error leaves QEMU alive), and after a time.
func (v *start) boot(ctx context.Context, vm *child) error {
	limit := v.in.config.bootTime()
	if cpu := v.spec.GetResources().GetCpu(); cpu > 0 && cpu < 1 {
		limit = time.Duration(float64(limit) / cpu)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the VM has not booted in "+limit.String()))
	defer cancel()
	v.bootFailed = true
	stopped := make(chan string, 1)
	q, err := v.in.qmpEvents(ctx, v.r.CellID, func(e qmp.Event) {
		if e.Name == "STOP" || e.Name == "GUEST_PANICKED" || e.Name == "SHUTDOWN" {
			select {
			case stopped <- fmt.Sprintf("%s %s", e.Name, e.Data):
			default:
			}
		}
	})
	if err != nil {
		return errors.Join(vm.exited(), err)
	}
	defer q.Close()
	if state, err := q.State(ctx); err == nil && state == "internal-error" {
		return errors.New("QEMU stopped the VM: " + state)
	}
	ctl, err := v.in.control(ctx, v.r.CellID)
	if err != nil {
		return err
	}
	defer ctl.Close()
	tell := ctl.Ping
	if !v.bare {
		setup, err := v.setup()
		if err != nil {
			return err
		}
		tell = func(ctx context.Context) error { return ctl.Setup(ctx, setup) }
	}
	up := make(chan error, 1)
	go func() { up <- tell(ctx) }()
	select {
	case err := <-up:
		var refused *guest.Error
		if errors.As(err, &refused) {
			v.bootFailed = false // it booted, and does not like what it was told
		}
		if err == nil {
			return q.Run(ctx, "set-action", map[string]string{"shutdown": "poweroff"}, nil)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}
		return errors.Join(err, v.console(q))
	case <-vm.done:
		cancel()
		<-up //nolint:errcheck // how the VM ended says more
		return vm.exited()
	case why := <-stopped:
		err := errors.Join(errors.New("QEMU stopped the VM: "+why), v.console(q))
		cancel()
		<-up //nolint:errcheck // how the VM ended says more
		return err
	}
}

// console is the end of what the guest's kernel has said, for an error.
func (v *start) console(q *qmp.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var said string
	args := map[string]any{"device": "console", "size": 1000}
	if q.Run(ctx, "ringbuf-read", args, &said) != nil || said == "" {
		return nil
	}
	return fmt.Errorf("its console: %q", said)
}

func (v *start) setup() (*guest.Setup, error) {
	reset, err := v.reset()
	if err != nil {
		return nil, err
	}
	s := &guest.Setup{
		Hostname: hostname(v.r.CellID), Secret: v.spec.GetLinkSecret(), Reset: reset, Pids: v.spec.GetResources().GetPids(),
		Volumes: []guest.Volume{},
	}
	for i, vol := range v.r.Volumes {
		s.Volumes = append(s.Volumes, guest.Volume{Port: volumePort(i), Target: vol.Target, ReadOnly: vol.ReadOnly})
	}
	return s, nil
}

// hostname fits what a kernel takes: 64 bytes, the end among them.
func hostname(id string) string { return id[:min(len(id), 63)] }
