package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/config"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// start makes a process that is checked, described and configured. With a nil
// image the executable is looked up and checked anew; otherwise the image is
// the one that ran before, whatever lies in the directory now. On success the
// image belongs to the caller.
func (i *instance) start(spec config.Instance, held *image) (*process, *image, *Fault) {
	c := i.catalog
	if spec.Invalid != "" { // its labels may be anything, so nothing of it is looked up
		return nil, nil, faultf(InvalidConfig, "%s", clean(spec.Invalid, 1024)).advise("correct its block, then reload")
	}
	img, fault := held, (*Fault)(nil)
	if img == nil {
		if img, fault = c.verified(spec); fault != nil {
			return nil, nil, fault
		}
	}
	p, fault := c.launch(i.ctx, spec, img)
	if fault == nil {
		if fault = c.describe(i.ctx, p); fault == nil {
			fault = c.configure(i.ctx, p, spec)
		}
		if fault != nil {
			p.discard()
		}
	}
	if fault != nil {
		if held == nil {
			c.images.release(img)
		}
		return nil, nil, fault
	}
	return p, img, nil
}

// verified is the executable of an instance as it lies there now, if it may
// run.
func (c *Catalog) verified(spec config.Instance) (*image, *Fault) {
	if c.prepareErr != nil {
		return nil, faultf(HostTrouble, "the host cannot make its plugin directories: %v", c.prepareErr)
	}
	found, fault := locate(c.options.Dir, spec)
	if fault != nil {
		return nil, fault
	}
	lock, err := ReadLock(c.options.LockFile)
	if err != nil {
		return nil, lockFault(c.options.LockFile, err)
	}
	if lock == nil && c.options.RequireLock != nil && c.options.RequireLock(spec) {
		return nil, faultf(NotLocked, "%s may run only with a lock file, and there is none at %q", found.File, c.options.LockFile).
			advise("if you trust what is in %s, run `airlock plugin lock`", c.options.Dir)
	}
	img, fault := c.images.acquire(found)
	if fault != nil {
		return nil, fault
	}
	if fault := lock.check(found, img.sum); fault != nil {
		c.images.release(img)
		return nil, fault
	}
	return img, nil
}

// describe asks a process what it is and compares with what it must be.
func (c *Catalog) describe(ctx context.Context, p *process) *Fault {
	ctx, cancel := context.WithTimeout(ctx, c.deadlines.Describe)
	defer cancel()
	d, err := pluginv1.NewPluginClient(p.conn).Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return p.failed(NotDescribed, "did not describe itself", "it was asked what it is", err)
	}
	found := p.image.found
	kind := strings.ToLower(strings.TrimPrefix(d.GetKind().String(), "KIND_"))
	switch {
	case kind != found.Kind:
		return faultf(WrongKind, "%s says that it is of kind %q", found.Path, kind).
			advise("its file must be called %s", FileName(kind, clean(d.GetName(), 64)))
	case d.GetName() != found.Name:
		return faultf(WrongName, "%s says that its name is %q", found.Path, clean(d.GetName(), 64)).
			advise("its file must be called %s", FileName(kind, clean(d.GetName(), 64)))
	case !slices.Contains(d.GetContracts(), plugin.Contract):
		return faultf(WrongContract, "%s speaks %q, this host speaks %s", found.Path, d.GetContracts(), plugin.Contract).
			advise("upgrade the older of the two")
	}
	p.description = d
	return nil
}

// configure decodes, validates and hands over the instance's block.
func (c *Catalog) configure(ctx context.Context, p *process, spec config.Instance) *Fault {
	content, fault := c.validate(ctx, p, spec)
	if fault != nil {
		return fault
	}
	return c.handOver(ctx, p, spec, content)
}

// validate is the first half of configure; it has no effect.
func (c *Catalog) validate(ctx context.Context, p *process, spec config.Instance) ([]byte, *Fault) {
	content, diags, fault := c.findings(ctx, p, spec)
	if fault != nil {
		return nil, fault
	}
	if diags.HasErrors() {
		return nil, faultf(InvalidConfig, "%s", diagText(diags))
	}
	for _, d := range diags {
		c.log.Warn("plugin config warning", "plugin", spec.Ref(), "warning", diagText(hcl.Diagnostics{d}))
	}
	return content, nil
}

// findings are what schema and plugin say of a config; the content is good
// only without errors.
func (c *Catalog) findings(ctx context.Context, p *process, spec config.Instance) ([]byte, hcl.Diagnostics, *Fault) {
	content, diags := c.options.Decode(spec, p.description.GetSchema())
	if diags.HasErrors() {
		return nil, diags, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.deadlines.Configure)
	defer cancel()
	reply, err := pluginv1.NewPluginClient(p.conn).Validate(ctx, &pluginv1.ValidateRequest{ConfigJson: content})
	if err != nil {
		return nil, nil, p.failed(Refused, "did not validate its config", "its config was being validated", err)
	}
	return content, append(diags, c.options.MapDiagnostics(spec, reply.GetDiagnostics())...), nil
}

func (c *Catalog) handOver(ctx context.Context, p *process, spec config.Instance, content []byte) *Fault {
	state, run, err := c.instanceDirs(spec, p.uid)
	if err != nil {
		return faultf(HostTrouble, "no directories for %s: %v", spec.Ref(), err).retry()
	}
	ctx, cancel := context.WithTimeout(ctx, c.deadlines.Configure)
	defer cancel()
	_, err = pluginv1.NewPluginClient(p.conn).Configure(ctx, &pluginv1.ConfigureRequest{
		Instance: spec.Name, ConfigJson: content, StateDir: state, RunDir: run,
		HostVersion: c.options.HostVersion, HostId: c.options.HostID,
	})
	if err != nil {
		fault := p.failed(Refused, "refused its config", "it was being configured", err)
		if attribute, ok := plugin.RestartAttribute(err); ok {
			fault.restartFor = attribute
		}
		return fault
	}
	p.configSum = sha256.Sum256(content)
	return nil
}

func sameConfig(p *process, content []byte) bool { return p.configSum == sha256.Sum256(content) }

// instanceDirs makes the directories of an instance, mode 0700.
func (c *Catalog) instanceDirs(spec config.Instance, user *ids) (state, run string, err error) {
	name := spec.Ref()
	if ok, _ := regexp.MatchString(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$`, name); !ok {
		sum := sha256.Sum256([]byte(name))
		name = "ref-" + hex.EncodeToString(sum[:16])
	}
	state, run = filepath.Join(c.options.StateDir, name), filepath.Join(c.options.RunDir, name)
	for _, dir := range []string{state, run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", "", err
		}
		if user != nil {
			if err := os.Chown(dir, int(user.uid), int(user.gid)); err != nil {
				return "", "", err
			}
		}
	}
	return state, run, nil
}

// failed is the fault of a call in the start of a plugin: what the plugin did, or
// that it ended while something was done with it.
func (p *process) failed(code Code, what, while string, err error) *Fault {
	path := p.image.found.Path
	st := status.Convert(err)
	patience := 200 * time.Millisecond
	if st.Code() == codes.Unavailable { // the connection is gone, so the process will be
		patience = 5 * time.Second
	}
	if p.endsWithin(patience) {
		return faultf(ExitsEarly, "%s ended while %s (%s)", path, while, p.ending()).
			words(p.logs.words()).retry()
	}
	fault := faultf(code, "%s %s: %s (%s)", path, what, clean(st.Message(), maxFieldValue), st.Code())
	switch st.Code() {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented, codes.NotFound, codes.PermissionDenied:
		return fault
	}
	return fault.retry()
}

// diagText is diagnostics on one line: file:line,column: summary; detail.
func diagText(diags hcl.Diagnostics) string {
	var parts []string
	for _, d := range diags {
		text := d.Summary
		if d.Detail != "" {
			text += "; " + d.Detail
		}
		if d.Subject != nil {
			text = d.Subject.String() + ": " + text
		}
		parts = append(parts, clean(text, maxFieldValue))
	}
	return strings.Join(parts, " / ")
}
