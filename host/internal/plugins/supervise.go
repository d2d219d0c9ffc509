package plugins

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// supervise keeps an instance running until its context ends. It is the only
// goroutine that starts and replaces its process; reload and reconfigure come
// in as commands.
func (i *instance) supervise() {
	defer i.catalog.running.Done()
	defer close(i.ended)
	defer i.leave()
	var crashes []time.Time
	pause := newPause()
	for i.ctx.Err() == nil {
		fault := i.ensure()
		if fault == nil {
			i.serve()
			if i.ctx.Err() != nil {
				return
			}
			fault = i.crashed(i.process())
		} else if i.ctx.Err() != nil {
			return
		} else if !i.wasReady() || !fault.Retry {
			i.quarantine(fault)
			crashes = nil
			continue
		}
		if crashes = i.recent(append(crashes, time.Now())); len(crashes) > i.catalog.deadlines.MaxRestarts {
			i.quarantine(crashLoop(fault, len(crashes), time.Since(crashes[0])))
			crashes = nil
			continue
		}
		i.change(func() { i.fault = fault; i.restarts++ })
		i.log.Warn("plugin restarts", "reason", fault.Error(), "crashes", len(crashes))
		if len(crashes) <= 1 {
			pause = newPause()
			continue // the first time at once: a mission may be waiting
		}
		i.idle(pause.NextBackOff())
	}
}

func newPause() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = 50*time.Millisecond, 5*time.Second, 2
	return b
}

// recent drops what lies before the window.
func (i *instance) recent(crashes []time.Time) []time.Time {
	for len(crashes) > 0 && time.Since(crashes[0]) > i.catalog.deadlines.RestartWindow {
		crashes = crashes[1:]
	}
	return crashes
}

// ensure starts a process, unless a command has done so.
func (i *instance) ensure() *Fault {
	if i.process() != nil {
		return nil
	}
	p, img, fault := i.start(i.currentSpec(), i.heldImage())
	if fault != nil {
		return fault
	}
	i.adopt(p, img, nil)
	return nil
}

// serve waits for the end of the current process, doing commands meanwhile; a
// command may replace the process.
func (i *instance) serve() {
	for {
		p := i.process()
		select {
		case <-i.ctx.Done():
			return
		case <-p.exited:
			return
		case command := <-i.commands:
			command()
		}
	}
}

// crashed takes a process that has ended out of use and says why it ended.
func (i *instance) crashed(p *process) *Fault {
	fault := faultf(ExitsEarly, "%s ended (%s)", p.image.found.Path, p.ending()).words(p.logs.words()).retry()
	i.change(func() {
		i.current, i.health, i.hung = nil, nil, ""
		i.fault, i.lastExit = fault, p.ending()
	})
	p.discard()
	return fault
}

func crashLoop(last *Fault, times int, within time.Duration) *Fault {
	return faultf(CrashLoop, "%s, for the %dth time within %s", last.Summary, times, within.Round(100*time.Millisecond)).
		advise("it is left alone for a while; `airlock plugin reload` tries again at once").words(last.Words).retry()
}

// quarantine sets the instance aside until a command or, for a cause that may
// pass, the time brings it back.
func (i *instance) quarantine(fault *Fault) {
	i.catalog.images.release(i.takeImage())
	var again <-chan time.Time
	var at time.Time
	if fault.Retry {
		wait := i.requeue()
		at = time.Now().Add(wait)
		timer := time.NewTimer(wait)
		defer timer.Stop()
		again = timer.C
	}
	i.change(func() { i.state, i.fault, i.retryAt, i.ready = Quarantined, fault, at, false })
	i.log.Error("plugin quarantined", "code", string(fault.Code), "reason", fault.Error())
	for i.process() == nil {
		select {
		case <-i.ctx.Done():
			return
		case <-again:
			return
		case command := <-i.commands:
			command()
		}
	}
}

// requeue is how long a quarantine lasts: longer each time in a row.
func (i *instance) requeue() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	wait := min(i.catalog.deadlines.Requeue<<min(i.requeues, 8), 10*i.catalog.deadlines.Requeue)
	i.requeues++
	return wait
}

// idle waits, doing commands meanwhile.
func (i *instance) idle(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for i.process() == nil {
		select {
		case <-timer.C:
			return
		case <-i.ctx.Done():
			return
		case command := <-i.commands:
			command()
		}
	}
}

// leave ends the process for good, when the supervisor returns.
func (i *instance) leave() {
	p := i.process()
	i.change(func() { i.state, i.fault, i.current, i.health = Ended, nil, nil, nil })
	if p != nil {
		i.end(p)
	}
	i.catalog.images.release(i.takeImage())
}

// end asks a process to tidy up and then ends it. Its instance must not use it
// any more.
func (i *instance) end(p *process) {
	ctx, cancel := context.WithTimeout(i.catalog.closing, i.catalog.deadlines.Shutdown)
	defer cancel()
	p.shutdown(ctx)
	p.discard()
}

// retire ends a process that was replaced, once its calls are done. It holds
// the image of that process.
func (i *instance) retire(p *process, img *image) {
	defer i.catalog.running.Done()
	done := make(chan struct{})
	go func() { p.calls.Wait(); close(done) }()
	timer := time.NewTimer(i.catalog.deadlines.Drain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-p.exited:
	case <-i.catalog.ctx.Done():
	}
	i.end(p)
	<-done
	i.catalog.images.release(img)
}
