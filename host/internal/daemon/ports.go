package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/plugins"
	"github.com/airlock-host/airlock/host/internal/store"
)

// handler lets a method be a handler.
func handler(f func(http.ResponseWriter, *http.Request)) http.Handler { return http.HandlerFunc(f) }

// linked is the engine as the orchestrator's link sees it.
type linked struct {
	*engine.Engine
	approvals *atomic.Bool // answers to approvals count
}

func (l linked) Answer(ctx context.Context, hitlID, actor, text string) error {
	return l.AnswerOverLink(ctx, hitlID, actor, text, l.approvals.Load())
}

// events gives the API what it reads of the journals.
type events struct{ *store.Store }

// catalogAPI gives the API the plugins.
func (h *host) catalogAPI() api.Plugins { return catalogAPI{h} }

type catalogAPI struct{ h *host }

func (c catalogAPI) Status() any { return c.h.catalog.Status() }

func (c catalogAPI) Reload(ctx context.Context, name string) error {
	err := c.h.catalog.Reload(ctx, name)
	if errors.Is(err, plugins.ErrUnknown) {
		return fmt.Errorf("%w: %w", engine.ErrNotFound, err)
	}
	return err
}

// ready says whether the host takes missions.
func (h *host) ready() api.Readiness {
	r := api.Readiness{Ready: true, Plugins: map[string]string{}}
	if err := h.store.Healthy(); err != nil {
		r.Ready, r.Store = false, err.Error()
	}
	if err := h.run.check(); err != nil {
		r.Ready, r.RunDir = false, err.Error()
	}
	if err := h.heads.Err(); err != nil {
		r.Heads = err.Error()
	}
	if h.sink != nil {
		if err := h.sink.Err(); err != nil {
			r.Heads = strings.TrimPrefix(r.Heads+"; "+err.Error(), "; ")
		}
	}
	r.Trouble = h.trouble.all()
	if why := h.now.refused.Load(); why != nil {
		r.Trouble = append(r.Trouble, *why)
	}
	if h.dialer != nil {
		r.Prices = h.dialer.gateway.Prices()
	}
	if refs := h.now.draining.Load(); refs != nil && len(*refs) > 0 {
		r.Trouble = append(r.Trouble, "not in the configuration any more, and kept until the missions and cells that use it are gone: "+strings.Join(*refs, ", "))
	}
	if h.engine != nil && h.engine.Draining() {
		r.Trouble = append(r.Trouble, "the host drains: it takes no new missions until it is started again")
	}
	if h.engine != nil {
		if line := noAgent(h.engine.Agents()); line != "" {
			r.Trouble = append(r.Trouble, line)
		}
		list := h.engine.Quarantined()
		for _, q := range list[:min(len(list), maxNamed)] {
			r.Trouble = append(r.Trouble, fmt.Sprintf("task %q is quarantined, its cell is frozen: %s", q.TaskID, q.Reason))
		}
		if more := len(list) - maxNamed; more > 0 {
			r.Trouble = append(r.Trouble, fmt.Sprintf("%d more tasks are quarantined: airlock mission list --live", more))
		}
		r.Trouble = append(r.Trouble, h.engine.Orphans(maxNamed)...)
	}
	for _, i := range instances(h.now.cfg.Load()) {
		reason := ""
		if _, err := h.catalog.Capabilities(i.Ref()); err != nil {
			reason = err.Error()
		}
		r.Plugins[i.Ref()] = reason
	}
	return r
}

// noAgent says that no agent can take a mission, and why; empty: one can. It does
// not make the host unready: it serves, missions that run are watched, and stops
// and approvals must find it, all of which a supervisor that restarts what is not
// ready would take away, and mend nothing.
func noAgent(agents []engine.AgentView) string {
	var why []string
	for _, a := range agents {
		if a.Healthy {
			return ""
		}
		if len(why) < maxNamed {
			why = append(why, fmt.Sprintf("%s: %s", a.Name, a.Reason))
		}
	}
	if len(agents) == 0 {
		return "the configuration has no agent block: no mission can be taken"
	}
	return fmt.Sprintf("no agent is healthy, so every dispatch is refused: %s", strings.Join(why, "; "))
}
