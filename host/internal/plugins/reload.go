package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/airlock-host/airlock/config"
)

// Reload replaces the process of an instance by a new one from the executable
// as it is now, checked anew. The name is a ref, an instance's label, a plugin's
// name or its file name; all that it fits are reloaded. The new process is
// started beside the old one and takes over only when it is configured: if that
// fails, the old one stays and the error says why.
func (c *Catalog) Reload(ctx context.Context, name string) error {
	var errs []error
	fits := 0
	for _, i := range c.all() {
		spec := i.currentSpec()
		if name != i.ref && name != spec.Name && name != spec.Driver && name != FileName(spec.Kind, spec.Driver) {
			continue
		}
		fits++
		if err := i.do(ctx, func() error { return i.replace(i.nextSpec()) }); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", i.ref, err))
		}
	}
	if fits == 0 {
		return fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	return errors.Join(errs...)
}

// NeedsRestart is why a changed config was not taken live.
type NeedsRestart struct {
	Ref       string
	Attribute string
	Reason    string
}

func (e *NeedsRestart) Error() string {
	return fmt.Sprintf("%s: a change of %s needs a new plugin process (%s): run `airlock plugin reload`", e.Ref, e.Attribute, e.Reason)
}

// Apply makes the catalog have these instances: new ones are started, missing
// ones ended, changed ones reconfigured live. The errors, by ref, say what
// could not be done; such an instance goes on as it was. *NeedsRestart is one
// of them.
func (c *Catalog) Apply(ctx context.Context, specs []config.Instance) map[string]error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make(map[string]error)
	wanted := make(map[string]config.Instance, len(specs))
	for _, spec := range specs {
		wanted[spec.Ref()] = spec
	}
	for _, i := range c.all() {
		spec, stays := wanted[i.ref]
		wg.Go(func() {
			if !stays {
				c.remove(ctx, i)
				return
			}
			if err := i.do(ctx, func() error { return i.reconfigure(spec) }); err != nil {
				mu.Lock()
				errs[i.ref] = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var added []*instance
	for _, spec := range specs {
		if c.find(spec.Ref()) == nil {
			if i := c.add(spec); i != nil {
				added = append(added, i)
			}
		}
	}
	for _, i := range added {
		select {
		case <-i.settled:
		case <-ctx.Done():
		}
		i.mu.Lock()
		if i.state == Quarantined {
			errs[i.ref] = i.fault
		}
		i.mu.Unlock()
	}
	c.order(specs)
	return errs
}

func (c *Catalog) remove(ctx context.Context, i *instance) {
	i.cancel()
	select {
	case <-i.ended:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, other := range c.instances {
		if other == i {
			c.instances = append(c.instances[:n:n], c.instances[n+1:]...)
			return
		}
	}
}

// order puts the instances into config order.
func (c *Catalog) order(specs []config.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sorted []*instance
	for _, spec := range specs {
		for _, i := range c.instances {
			if i.ref == spec.Ref() {
				sorted = append(sorted, i)
			}
		}
	}
	c.instances = sorted
}

// do has the supervisor run a command and waits for its end.
func (i *instance) do(ctx context.Context, command func() error) error {
	reply := make(chan error, 1)
	select {
	case i.commands <- func() { reply <- command() }:
	case <-i.ended:
		return errors.New("the plugin was ended")
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nextSpec is the config of the next process: what a reload could not give to
// the one that runs, else its own.
func (i *instance) nextSpec() config.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending != nil {
		return *i.pending
	}
	return i.spec
}

// replace runs in the supervisor.
func (i *instance) replace(spec config.Instance) error {
	p, img, fault := i.start(spec, nil)
	if fault != nil {
		i.aside(fault)
		return fault
	}
	// Before it is the current one: there is no moment at which the instance does
	// not say how it is, and no mission is refused for that.
	health := i.firstHealth(p)
	old, oldImage := i.process(), i.takeImage()
	i.mu.Lock()
	i.spec, i.pending = spec, nil
	i.mu.Unlock()
	i.adopt(p, img, health)
	if old != nil {
		i.catalog.running.Add(1)
		go i.retire(old, oldImage)
	} else {
		i.catalog.images.release(oldImage)
	}
	return nil
}

// reconfigure runs in the supervisor.
func (i *instance) reconfigure(spec config.Instance) error {
	p := i.process()
	if p == nil {
		return i.replace(spec)
	}
	content, fault := i.catalog.validate(i.ctx, p, spec)
	if fault == nil && sameConfig(p, content) {
		i.mu.Lock()
		i.spec, i.pending = spec, nil // its place in the file may be another one
		i.mu.Unlock()
		return nil
	}
	if fault == nil {
		fault = i.catalog.handOver(i.ctx, p, spec, content)
	}
	if fault != nil {
		if fault.restartFor != "" {
			i.mu.Lock()
			i.pending = &spec
			i.mu.Unlock()
			return &NeedsRestart{Ref: i.ref, Attribute: fault.restartFor, Reason: fault.Summary}
		}
		return fault
	}
	i.change(func() { i.spec, i.pending = spec, nil })
	return nil
}

// aside keeps the newest reason in the status of an instance that has no
// process anyway.
func (i *instance) aside(fault *Fault) {
	i.change(func() {
		if i.state == Quarantined {
			i.fault = fault
		}
	})
}
