package driver

import (
	"context"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/airlock-host/airlock/sdk/plugin"
)

// pullTime bounds one pull.
const pullTime = 30 * time.Minute

// pulls fetches images. One image is fetched once at a time, whoever waits for
// it, and goes on being fetched when nobody does: the next start finds it.
type pulls struct {
	mu sync.Mutex
	m  map[string]*pull
}

type pull struct {
	done chan struct{}
	err  error
}

// start begins a pull, or joins the one that is under way.
func (p *pulls) start(in *instance) *pull {
	key := in.engine.socket + " " + in.config.Image
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.m[key]; have != nil {
		return have
	}
	if p.m == nil {
		p.m = map[string]*pull{}
	}
	now := &pull{done: make(chan struct{})}
	p.m[key] = now
	go func() {
		now.err = in.pull()
		p.mu.Lock()
		delete(p.m, key)
		p.mu.Unlock()
		close(now.done)
	}()
	return now
}

// wait returns when the image has been fetched.
func (p *pulls) wait(ctx context.Context, in *instance) error {
	now := p.start(in)
	select {
	case <-now.done:
		return now.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (in *instance) pull() error {
	ctx, cancel := context.WithTimeout(context.Background(), pullTime)
	defer cancel()
	r, err := in.engine.client().ImagePull(ctx, in.config.Image, client.ImagePullOptions{})
	if err == nil {
		err = r.Wait(ctx)
		_ = r.Close()
	}
	switch {
	case err == nil:
		return nil
	case cerrdefs.IsNotFound(err), cerrdefs.IsUnauthorized(err), cerrdefs.IsPermissionDenied(err), cerrdefs.IsInvalidArgument(err):
		return plugin.FailedPrecondition("image %s cannot be pulled: %v; check the name, or bring it to the engine with "+
			"`docker pull` (a private registry needs `docker login` there) or `docker load`", in.config.Image, err)
	}
	return plugin.Unavailable("image %s cannot be pulled: %v", in.config.Image, err)
}

// missing is the error for an image that is not there and is not to be fetched.
func missing(c Config) error {
	return plugin.FailedPrecondition("%s", missingText(c))
}

func missingText(c Config) string {
	if c.Pull == pullNever {
		return "the engine has no image " + c.Image + `, and pull = "never": bring it there with ` +
			"`docker pull " + c.Image + "` or `docker load`, or set pull = \"missing\""
	}
	return "the engine has no image " + c.Image + ", though it was pulled a moment ago: something removes images there"
}
