package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	"github.com/airlock-host/airlock/sdk/stage"
)

// level is how far a cell is set apart from the machine.
type level string

const (
	levelRoot level = "root"  // namespaces, made as root
	levelUser level = "user"  // the same below a user namespace, one uid in it
	levelNone level = "no-ns" // plain processes
	probeTime       = 5 * time.Second
	probeName       = "airlock-probe"
)

// probe finds the best level that works here by trying it, and takes control
// groups out of use in which nothing can be started. It is not sure when a try
// came to nothing for want of time, memory or processes: a busy machine is not
// one that cannot.
func (d *Driver) probe(ctx context.Context, in *instance) (sure bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	sure = true
	in.level = levelNone
	if in.config.Namespaces == namespacesNone {
		in.levelWhy = "namespaces = \"none\""
	} else {
		try := levelUser
		if os.Geteuid() == 0 {
			try = levelRoot
		}
		if err := d.try(ctx, in, try, false); err != nil {
			in.levelWhy = err.Error()
			sure = !passes(ctx, err)
			d.log.Warn("namespaces cannot be used", "error", err)
		} else {
			in.level = try
		}
	}
	if err := d.try(ctx, in, in.level, true); err != nil {
		in.groups.Refuse("nothing can be started in them: " + err.Error())
		sure = sure && !passes(ctx, err)
		d.log.Warn("control groups cannot be used", "error", err)
	}
	return sure
}

// passes says that what kept a try from its end may be gone the next time.
func passes(ctx context.Context, err error) bool {
	for _, temporary := range []error{context.DeadlineExceeded, context.Canceled, unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSPC} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return ctx.Err() != nil
}

const (
	firstAgain = time.Second
	lastAgain  = 5 * time.Minute
)

// probeAgain makes a probe again that was not sure, until it is or another
// Configure comes; then new cells get what the machine can do.
func (d *Driver) probeAgain(ctx context.Context, in *instance) {
	for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		next := *in
		next.levelWhy, next.groups = "", in.newGroups()
		if sure := d.probe(ctx, &next); ctx.Err() != nil {
			return
		} else if !sure {
			continue
		}
		if d.current.CompareAndSwap(in, &next) {
			d.log.Info("what cells are set apart by was found out after all", "level", next.level)
			d.report(&next)
		}
		return
	}
}

// tryStart runs a stage that sets everything up and ends.
func (d *Driver) tryStart(ctx context.Context, in *instance, l level, grouped bool) error {
	s := start{level: l, ownNet: l != levelNone}
	s.setup.Probe = true
	if l != levelNone {
		link, err := os.MkdirTemp(in.state, "probe-")
		if err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		defer os.RemoveAll(link)
		s.setup.Loopback = true
		s.setup.Hostname = probeName
		s.setup.Root = &stage.Root{Scratch: in.scratchDir(), LinkDir: link, User: l == levelUser}
	}
	if grouped {
		name := fmt.Sprintf("probe-%d", os.Getpid())
		g, _, err := in.groups.Create(name, cgroup.Limits{})
		if err != nil {
			return err
		}
		defer func() { _ = g.Remove(ctx) }()
		s.group = g
	}
	c, err := d.launch(s)
	if err != nil {
		return err
	}
	defer c.release()
	_, err = c.report(ctx)
	<-c.done // a probe ends by itself, or by the report's error
	return err
}

// report tells the host how the instance is.
func (d *Driver) report(in *instance) {
	attrs := map[string]string{"namespaces": "yes", "link": "protected", "limit.disk": diskUnlimited}
	var limits []string
	for name, how := range in.groups.Support() {
		attrs["limit."+name] = how
		if strings.HasPrefix(how, "not-enforced:") {
			limits = append(limits, name)
		}
	}
	var reasons []string
	switch in.level {
	case levelNone:
		attrs["namespaces"] = "no: " + in.levelWhy
		reasons = append(reasons, "cells are plain processes ("+in.levelWhy+")")
	case levelUser:
		attrs["namespaces"] = "yes, below a user namespace"
	}
	if os.Geteuid() != 0 {
		attrs["link"] = "unprotected: an ordinary user cannot give a cell another uid"
	}
	attrs["landlock"] = landlockSupport(in.config.Landlock)
	if len(limits) > 0 {
		slices.Sort(limits)
		reasons = append(reasons, "limits that cannot be enforced: "+strings.Join(limits, ", ")+
			" ("+strings.TrimPrefix(attrs["limit."+limits[0]], "not-enforced:")+")")
	}
	if len(reasons) > 0 {
		d.Health().Degraded(strings.Join(reasons, "; "), attrs)
		return
	}
	d.Health().Healthy(maps.Clone(attrs))
}

func landlockSupport(wanted bool) string {
	if !wanted {
		return "no: switched off"
	}
	if v := stage.LandlockVersion(); v > 0 {
		return fmt.Sprintf("version %d", v)
	}
	return "no: the kernel does not have it"
}
