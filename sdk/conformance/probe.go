package conformance

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func probeChecks() []loadCheck {
	return []loadCheck{
		{"probe-immediate", probeImmediate},
		{"probe-on-change", probeOnChange},
		{"probe-reason-when-undetected", probeReason},
		{"probe-many-watchers", probeWatchers},
		{"probe-cheap", probeCheap},
		{"attributes-typed", attributesTyped},
	}
}

func watch(ctx context.Context, p *Process) (grpc.ServerStreamingClient[pluginv1.HealthResponse], error) {
	stream, err := p.Plugin().Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	return stream, nil
}

func next(stream grpc.ServerStreamingClient[pluginv1.HealthResponse]) (*pluginv1.HealthResponse, error) {
	h, err := stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	switch h.GetState() {
	case pluginv1.HealthState_HEALTH_STATE_HEALTHY:
	case pluginv1.HealthState_HEALTH_STATE_DEGRADED, pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE:
		if strings.TrimSpace(h.GetReason()) == "" {
			return nil, fmt.Errorf("its health is %v without a reason", h.GetState())
		}
	default:
		return nil, fmt.Errorf("its health is %v", h.GetState())
	}
	return h, nil
}

// health is what it says at once.
func health(ctx context.Context, p *Process) (*pluginv1.HealthResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := watch(ctx, p)
	if err != nil {
		return nil, err
	}
	return next(stream)
}

func probeImmediate(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	best := time.Hour
	for range 3 {
		begun := time.Now()
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := health(short, p)
		cancel()
		if err != nil {
			return err
		}
		best = min(best, time.Since(begun))
	}
	if best > time.Second {
		return fmt.Errorf("its first word on its health takes %v", best)
	}
	return nil
}

// probeOnChange: whoever watches before Configure sees what comes of it.
func probeOnChange(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	stream, err := watch(ctx, p)
	if err != nil {
		return err
	}
	if _, err := next(stream); err != nil {
		return err
	}
	if err := l.configure(ctx, p, l.config); err != nil {
		return err
	}
	if _, err := next(stream); err != nil {
		return fmt.Errorf("configure has changed its health, and nobody was told: %w", err)
	}
	return nil
}

// probeReason: a plugin that cannot take work says why; before Configure none
// can.
func probeReason(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	h, err := health(ctx, p)
	if err != nil {
		return err
	}
	if h.GetState() != pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE {
		return fmt.Errorf("before configure its health is %v", h.GetState())
	}
	return nil
}

func probeWatchers(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	for range 20 {
		stream, err := watch(ctx, p)
		if err != nil {
			return err
		}
		if _, err := next(stream); err != nil {
			return err
		}
	}
	return nil
}

// probeCheap: a look at its health costs at most 50 ms of CPU time.
func probeCheap(ctx context.Context, l *loader) error {
	const looks = 10
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	if _, err := health(ctx, p); err != nil {
		return err
	}
	before, err := cpuTime(p.PID())
	if err != nil {
		return err
	}
	for range looks {
		if _, err := health(ctx, p); err != nil {
			return err
		}
	}
	after, err := cpuTime(p.PID())
	if err != nil {
		return err
	}
	if each := (after - before) / looks; each > 50*time.Millisecond {
		return fmt.Errorf("a look at its health costs %v of CPU time", each)
	}
	return nil
}

// cpuTime is what a process has used, its children that have ended included.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 15 {
		return 0, fmt.Errorf("the stat of process %d cannot be read", pid)
	}
	var ticks uint64
	for _, v := range f[11:15] {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func attributesTyped(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	h, err := health(ctx, p)
	if err != nil {
		return err
	}
	attributeWord := regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]*$`)
	for name, v := range h.GetAttributes() {
		if !attributeWord.MatchString(name) {
			return fmt.Errorf("the health attribute %q is not made of a-z, 0-9, ., _ and -", name)
		}
		limit := strings.HasPrefix(name, "limit.")
		if v == "" || limit && !strings.HasPrefix(v, "enforced-by:") && !strings.HasPrefix(v, "not-enforced:") {
			return fmt.Errorf("the health attribute %s is %q", name, v)
		}
	}
	return nil
}
