package driver

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

const (
	// probeTime is how long the engine may take to say how it is.
	probeTime = 3 * time.Second
	// pingPause is the pause between two signs of life; a connection that ends
	// says more, and at once.
	pingPause = time.Second
	// awayPause is the pause between two tries while the engine is away.
	awayPause = 300 * time.Millisecond
)

// watch reports how the engine is, until ctx ends. It asks at once, then on
// every word of the engine about itself or an image, when the connection
// breaks, and when a sign of life is late.
func (d *Driver) watch(ctx context.Context, in *instance) {
	for ctx.Err() == nil {
		if d.probe(ctx, in) {
			d.follow(ctx, in)
			continue
		}
		select {
		case <-time.After(awayPause):
		case <-ctx.Done():
			return
		}
		if err := in.engine.renew(); err != nil {
			d.log.Warn("cannot make a client of the engine", "error", err)
		}
	}
}

// probe asks the engine how it is and reports it; false = it does not answer.
func (d *Driver) probe(ctx context.Context, in *instance) bool {
	ask, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	api := in.engine.client()
	got, err := api.Info(ask, client.InfoOptions{})
	if err != nil {
		if ctx.Err() == nil {
			d.away(in, err)
		}
		return false
	}
	in.engine.setInfo(&got.Info)
	attributes := attributesOf(in, &got.Info, api.ClientVersion())
	if why := unusable(&got.Info); why != "" {
		d.Health().Unavailable(why, attributes)
		return true
	}
	image, err := api.ImageInspect(ask, in.config.Image)
	switch {
	case cerrdefs.IsNotFound(err):
		d.imageMissing(ctx, in, attributes)
		return true
	case err != nil:
		if ctx.Err() == nil {
			d.away(in, err)
		}
		return false
	}
	attributes["image.id"] = image.ID
	if len(image.RepoDigests) > 0 {
		attributes["image.digest"] = image.RepoDigests[0]
	}
	switch {
	case image.Os != "" && image.Os != "linux":
		d.Health().Unavailable("the image "+in.config.Image+" is for "+image.Os+"; cells need one for linux", attributes)
	case !got.Info.LiveRestoreEnabled:
		d.Health().Degraded(`cells end when the engine is restarted: live-restore is off. Put "live-restore": true into `+
			"/etc/docker/daemon.json and reload the engine (systemctl reload docker)", attributes)
	default:
		d.Health().Healthy(attributes)
	}
	return true
}

func (d *Driver) away(in *instance, err error) {
	text := strings.TrimPrefix(err.Error(), "Error response from daemon: ")
	why := "the engine at " + in.engine.socket + " does not answer: " + text + ". Start it (systemctl start docker), " +
		"or correct the attribute endpoint. Cells that run go on running"
	if !exists(in.engine.socket) {
		why = "there is no engine at " + in.engine.socket + ": install and start one, or correct the attribute endpoint"
	} else if !client.IsErrConnectionFailed(err) {
		why = "the engine at " + in.engine.socket + " hangs or is overloaded: " + text + ". Look at its log " +
			"(journalctl -u docker). Cells that run go on running"
	}
	d.Health().Unavailable(why, map[string]string{"endpoint": in.engine.socket})
}

// imageMissing fetches the image before a cell needs it, if that is wanted.
func (d *Driver) imageMissing(ctx context.Context, in *instance, attributes map[string]string) {
	if in.config.Pull == pullNever {
		d.Health().Unavailable(missingText(in.config), attributes)
		return
	}
	d.Health().Unavailable("the image "+in.config.Image+" is being pulled", attributes)
	if err := d.pulls.wait(ctx, in); err != nil && ctx.Err() == nil {
		d.Health().Unavailable(plain(err), attributes)
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
		}
	}
}

// follow returns when there is something new: a word of the engine, the end of
// the connection, or a sign of life that is late.
func (d *Driver) follow(ctx context.Context, in *instance) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{})
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	api := in.engine.client()
	go func() {
		defer close(done)
		stream := api.Events(ctx, client.EventsListOptions{Filters: make(client.Filters).Add("type", string(events.DaemonEventType), string(events.ImageEventType))})
		select {
		case <-stream.Messages:
		case err := <-stream.Err:
			d.log.Debug("the engine's stream of events has ended", "error", err)
		case <-ctx.Done():
			return
		}
		close(news)
	}()
	tick := time.NewTicker(pingPause)
	defer tick.Stop()
	for {
		select {
		case <-news:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			ask, stop := context.WithTimeout(ctx, probeTime)
			_, err := api.Ping(ask, client.PingOptions{})
			stop()
			if err != nil {
				return
			}
			if h := d.Health().Current(); h.GetAttributes()["image.id"] == "" {
				return // the image may have come
			}
		}
	}
}

// unusable says why cells cannot be made at an engine; empty = they can.
func unusable(info *system.Info) string {
	switch {
	case info.OSType != "" && info.OSType != "linux":
		return "the engine runs containers for " + info.OSType + "; cells need Linux"
	case secured(info, "rootless"):
		return "the engine is rootless: it cannot enter the directories of a host that is root. Use the engine of the " +
			"machine, or run the host as the engine's user with the host-supervisor driver"
	}
	return ""
}

func attributesOf(in *instance, info *system.Info, version string) map[string]string {
	out := map[string]string{
		"endpoint":              in.engine.socket,
		"engine.version":        info.ServerVersion,
		"engine.api":            version,
		"engine.cgroup_driver":  info.CgroupDriver,
		"engine.cgroup_version": max(info.CgroupVersion, "1"),
		"engine.storage_driver": info.Driver,
		"engine.live_restore":   strconv.FormatBool(info.LiveRestoreEnabled),
		"engine.runtime":        info.DefaultRuntime,
		"engine.userns_remap":   strconv.FormatBool(remapped(info)),
		"image":                 in.config.Image,
		"network.open":          in.config.Network,
	}
	if r := in.config.Runtime; r != nil {
		out["engine.runtime"] = *r
	}
	out["limit.disk"] = volumesUnlimited // every mission has a volume that it may write
	out["link"] = "protected"
	if os.Geteuid() != 0 && in.uid == 0 {
		out["link"] = "unprotected: an ordinary user has no uids to give; set user"
	}
	for name, can := range map[string]bool{"cpu": info.CPUCfsQuota, "memory": info.MemoryLimit, "pids": info.PidsLimit} {
		out["limit."+name] = "not-enforced:the engine says that the kernel cannot"
		if can {
			out["limit."+name] = enforcedBy(info)
		}
	}
	return out
}

// plain is an error's text without its code.
func plain(err error) string {
	_, text, ok := strings.Cut(err.Error(), "desc = ")
	if !ok {
		return err.Error()
	}
	return text
}
