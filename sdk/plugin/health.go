package plugin

import (
	"context"
	"maps"
	"sync"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"google.golang.org/protobuf/proto"
)

// Health holds a plugin's state and tells every watcher, at once and then on
// each change. The zero value is ready to use and says that the plugin is not
// configured yet. It is safe for use from any goroutine.
type Health struct {
	mu      sync.Mutex
	current *pluginv1.HealthResponse // nil: never set
	changed chan struct{}            // closed at the next change
}

// Healthy says that everything works. Attributes are facts worth showing, for
// example {"engine": "28.0.1"}; the map is copied.
func (h *Health) Healthy(attributes map[string]string) {
	h.set(pluginv1.HealthState_HEALTH_STATE_HEALTHY, "", attributes)
}

// Degraded says that work is taken, with a limit that reason names.
func (h *Health) Degraded(reason string, attributes map[string]string) {
	h.set(pluginv1.HealthState_HEALTH_STATE_DEGRADED, reason, attributes)
}

// Unavailable says that no work can be taken now; reason tells an operator
// what to do about it.
func (h *Health) Unavailable(reason string, attributes map[string]string) {
	h.set(pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE, reason, attributes)
}

func (h *Health) set(state pluginv1.HealthState, reason string, attributes map[string]string) {
	next := &pluginv1.HealthResponse{State: state, Reason: reason, Attributes: maps.Clone(attributes)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil && proto.Equal(h.current, next) {
		return
	}
	h.current = next
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Current is the state as it would be sent now.
func (h *Health) Current() *pluginv1.HealthResponse {
	state, _ := h.snapshot()
	return proto.Clone(state).(*pluginv1.HealthResponse)
}

// settle makes a plugin that has never said anything healthy: its Configure
// has just succeeded.
func (h *Health) settle() {
	h.mu.Lock()
	unset := h.current == nil
	h.mu.Unlock()
	if unset {
		h.Healthy(nil)
	}
}

func (h *Health) snapshot() (*pluginv1.HealthResponse, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	if h.current == nil {
		return &pluginv1.HealthResponse{
			State:  pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE,
			Reason: "not configured yet",
		}, h.changed
	}
	return h.current, h.changed
}

// Watch sends the state at once and then on every change, until ctx ends or
// send fails. A slow watcher skips states that were replaced meanwhile; it
// always gets the last one.
func (h *Health) Watch(ctx context.Context, send func(*pluginv1.HealthResponse) error) error {
	for {
		state, changed := h.snapshot()
		if err := send(state); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
