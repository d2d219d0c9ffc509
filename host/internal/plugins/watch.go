package plugins

import (
	"context"
	"fmt"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// watchHealth follows the health stream of a process until the process is
// gone. A broken stream is opened again.
func (i *instance) watchHealth(p *process) {
	defer i.catalog.running.Done()
	late := time.AfterFunc(i.catalog.deadlines.Health, func() {
		i.mu.Lock()
		silent := i.health == nil
		i.mu.Unlock()
		if silent {
			i.report(p, unwell(fmt.Sprintf("it reported no health within %s", i.catalog.deadlines.Health)))
		}
	})
	defer late.Stop()
	for {
		err := i.followHealth(p)
		if p.endsWithin(100*time.Millisecond) || i.process() != p {
			return
		}
		i.report(p, unwell(fmt.Sprintf("its health stream broke: %v", err)))
		if p.endsWithin(time.Second) || i.process() != p {
			return
		}
	}
}

// firstHealth waits for the first thing that a process says of its health.
func (i *instance) firstHealth(p *process) *pluginv1.HealthResponse {
	ctx, cancel := context.WithTimeout(i.ctx, i.catalog.deadlines.Health)
	defer cancel()
	stream, err := pluginv1.NewPluginClient(p.conn).Health(ctx, &pluginv1.HealthRequest{})
	var h *pluginv1.HealthResponse
	if err == nil {
		h, err = stream.Recv()
	}
	switch {
	case err == nil:
		return checkHealth(h)
	case ctx.Err() != nil:
		return unwell(fmt.Sprintf("it reported no health within %s", i.catalog.deadlines.Health))
	}
	return unwell(fmt.Sprintf("its health stream broke: %v", err))
}

func (i *instance) followHealth(p *process) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := pluginv1.NewPluginClient(p.conn).Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		return err
	}
	for {
		h, err := stream.Recv()
		if err != nil {
			return err
		}
		i.report(p, checkHealth(h))
	}
}

// checkHealth makes a message safe to show; one that breaks the contract
// counts as unavailable.
func checkHealth(h *pluginv1.HealthResponse) *pluginv1.HealthResponse {
	out := &pluginv1.HealthResponse{
		State: h.GetState(), Reason: clean(h.GetReason(), maxFieldValue), Attributes: map[string]string{},
	}
	switch h.GetState() {
	case pluginv1.HealthState_HEALTH_STATE_HEALTHY:
	case pluginv1.HealthState_HEALTH_STATE_DEGRADED, pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE:
		if out.Reason == "" {
			out.Reason = "the plugin gives no reason"
		}
	default:
		out = unwell("it sent a health state that does not exist")
	}
	for name, value := range h.GetAttributes() {
		if len(out.GetAttributes()) < 64 {
			out.Attributes[clean(name, 128)] = clean(value, 1024)
		}
	}
	return out
}

func unwell(reason string) *pluginv1.HealthResponse {
	return &pluginv1.HealthResponse{
		State: pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE, Reason: reason, Attributes: map[string]string{},
	}
}

// watchLife asks a process for a sign of life now and then, and at once when a
// call has passed its deadline. One that gives none for long is killed, sooner
// where it does not even try: it holds nothing, and the next process may do
// better.
func (i *instance) watchLife(p *process) {
	defer i.catalog.running.Done()
	d := i.catalog.deadlines
	timer := time.NewTimer(d.Probe)
	defer timer.Stop()
	var silent, idle time.Time // since when it gives no sign of life, and wants no processor either
	for {
		select {
		case <-p.exited:
			return
		case <-timer.C:
		case <-i.kick:
		}
		if i.process() != p {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), d.Describe)
		asked, before := time.Now(), look(p.pid)
		_, err := pluginv1.NewPluginClient(p.conn).Describe(ctx, &pluginv1.DescribeRequest{})
		cancel()
		next := d.Probe
		switch {
		case err == nil:
			silent, idle = time.Time{}, time.Time{}
			i.answered(p, asked)
		case p.alive():
			if silent.IsZero() {
				silent = asked
			}
			if !quiet(before, look(p.pid)) {
				idle = time.Time{}
			} else if idle.IsZero() {
				idle = asked
			}
			i.missed(p, fmt.Sprintf("it gives no sign of life (Describe, %s)", d.Describe))
			switch {
			case time.Since(silent) >= d.Hang:
				p.kill(fmt.Sprintf("no sign of life for %s", d.Hang))
			case !idle.IsZero() && time.Since(idle) >= d.Deaf:
				p.kill(fmt.Sprintf("no sign of life for %s, and it wanted no processor meanwhile", d.Deaf))
			}
		}
		if i.isHung() {
			next = min(d.Probe, time.Second)
		}
		timer.Reset(next)
	}
}

func (i *instance) isHung() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hung != ""
}
