package plugins

import (
	"context"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Check validates instances without any effect on the running ones: each block
// against the schema of its plugin, and by the plugin's own Validate. A plugin
// that does not run is started for the question and ended again. What keeps a
// plugin from being asked is a diagnostic at the block's header.
func (c *Catalog) Check(ctx context.Context, specs []config.Instance) hcl.Diagnostics {
	c.prepare.Do(func() { c.prepareErr = c.prepareDirs() })
	var all hcl.Diagnostics
	for _, spec := range specs {
		diags, fault := c.check(ctx, spec)
		all = append(all, diags...)
		if fault != nil {
			where := spec.Range
			all = append(all, &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: spec.Ref() + " cannot be used", Detail: fault.Error(), Subject: &where,
			})
		}
	}
	return all
}

func (c *Catalog) check(ctx context.Context, spec config.Instance) (hcl.Diagnostics, *Fault) {
	if p := c.borrow(ctx, spec); p != nil {
		defer p.calls.Done()
		_, diags, fault := c.findings(ctx, p, spec)
		return diags, fault
	}
	p, discard, fault := c.asked(ctx, spec)
	if fault != nil {
		return nil, fault
	}
	defer discard()
	_, diags, fault := c.findings(ctx, p, spec)
	return diags, fault
}

// asked starts a plugin for a question, beside those that run, and has it
// described; discard ends it.
func (c *Catalog) asked(ctx context.Context, spec config.Instance) (p *process, discard func(), fault *Fault) {
	img, fault := c.verified(spec)
	if fault != nil {
		return nil, nil, fault
	}
	if p, fault = c.launch(ctx, spec, img); fault != nil {
		c.images.release(img)
		return nil, nil, fault
	}
	discard = func() { p.discard(); c.images.release(img) }
	if fault = c.describe(ctx, p); fault != nil {
		discard()
		return nil, nil, fault
	}
	return p, discard, nil
}

// Saying is what a plugin says of itself once it has its config.
type Saying struct {
	Attributes map[string]string // of its health
	Features   []string
}

// Ask starts a plugin with its config, beside those that run and with its state
// in the catalog's own directory, for what it says of itself, and ends it again.
// The catalog has to be one that was made for the question.
func (c *Catalog) Ask(ctx context.Context, spec config.Instance) (*Saying, error) {
	c.prepare.Do(func() { c.prepareErr = c.prepareDirs() })
	p, discard, fault := c.asked(ctx, spec)
	if fault != nil {
		return nil, fault
	}
	defer discard()
	if fault := c.configure(ctx, p, spec); fault != nil {
		return nil, fault
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.deadlines.Shutdown)
		defer cancel()
		p.shutdown(ctx)
	}()
	ctx, cancel := context.WithTimeout(ctx, c.deadlines.Health)
	defer cancel()
	stream, err := pluginv1.NewPluginClient(p.conn).Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		return nil, err
	}
	for {
		h, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if h = checkHealth(h); h.GetState() != pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE {
			return &Saying{Attributes: h.GetAttributes(), Features: p.description.GetFeatures()}, nil
		}
	}
}

// borrow finds a process that serves the same plugin; nil when none does. The
// caller says calls.Done.
func (c *Catalog) borrow(ctx context.Context, spec config.Instance) *process {
	for _, i := range c.all() {
		other := i.currentSpec()
		if other.Kind != spec.Kind || other.Driver != spec.Driver || i.process() == nil {
			continue
		}
		if p, err := i.acquire(ctx); err == nil {
			return p
		}
	}
	return nil
}
