package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/airlock-host/airlock/host/internal/engine"
)

func (s *Server) livez(w http.ResponseWriter, _ *http.Request, _ *Operator) error {
	return writeJSON(w, http.StatusOK, map[string]any{"live": true, "version": s.opts.Version})
}

// readyz is 503 while the host can take no mission; plugins that are not well
// are named with their reason either way.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request, _ *Operator) error {
	ready := s.opts.Ready()
	if ready.Plugins == nil {
		ready.Plugins = map[string]string{}
	}
	status := http.StatusOK
	if !ready.Ready || ready.Store != "" {
		ready.Ready = false
		status = http.StatusServiceUnavailable
	}
	return writeJSON(w, status, ready)
}

func (s *Server) showMetrics(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	if s.opts.Metrics == nil {
		return refuse(http.StatusNotFound, "metrics are off: telemetry { prometheus = true } turns them on")
	}
	promhttp.HandlerFor(s.opts.Metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// agentList is the answer of GET /api/v1/agents.
type agentList struct {
	Agents []engine.AgentView `json:"agents"`
}

func (s *Server) listAgents(w http.ResponseWriter, _ *http.Request, op *Operator) error {
	list := agentList{Agents: []engine.AgentView{}}
	for _, a := range s.opts.Engine.Agents() {
		if op.MaySee(a.Name) {
			list.Agents = append(list.Agents, a)
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

func (s *Server) listPlugins(w http.ResponseWriter, _ *http.Request, _ *Operator) error {
	return writeJSON(w, http.StatusOK, map[string]any{"plugins": s.opts.Plugins.Status()})
}

func (s *Server) reloadPlugin(w http.ResponseWriter, r *http.Request, op *Operator) error {
	if err := s.readBody(w, r, true); err != nil {
		return err
	}
	name := r.PathValue("id")
	err := s.opts.Plugins.Reload(r.Context(), name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return refuse(http.StatusNotFound, "there is no plugin instance "+name)
	case err != nil:
		return coded(http.StatusBadGateway, "plugin_failed", err.Error())
	}
	s.log.Info("plugin reloaded", "plugin", name, "actor", op.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxDrain is the longest deadline that a drain takes.
const maxDrain = 24 * time.Hour

func (s *Server) drain(w http.ResponseWriter, r *http.Request, op *Operator) error {
	var text string
	if err := s.readBody(w, r, true, member{"deadline", &text, false}); err != nil {
		return err
	}
	if s.opts.Drain == nil {
		return refuse(http.StatusUnprocessableEntity, "this host cannot be drained over this route; stop it with SIGTERM")
	}
	var deadline time.Duration
	if text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > maxDrain {
			return badField("deadline", `it must be a duration such as "5m", at most 24h`)
		}
		deadline = d
	}
	s.log.Info("drain", "actor", op.Name, "deadline", deadline)
	if err := s.opts.Drain(r.Context(), deadline); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// showConfig is what the host runs with: every setting with its effect, none of
// the secrets.
func (s *Server) showConfig(w http.ResponseWriter, _ *http.Request, _ *Operator) error {
	if s.opts.Config == nil {
		return refuse(http.StatusNotFound, "this host has no configuration of its own to show")
	}
	return writeJSON(w, http.StatusOK, s.opts.Config())
}

// reload answers what was applied, and with 422 why nothing was.
func (s *Server) reload(w http.ResponseWriter, r *http.Request, op *Operator) error {
	if err := s.readBody(w, r, true); err != nil {
		return err
	}
	if s.opts.Reload == nil {
		return refuse(http.StatusUnprocessableEntity, "this host has no configuration file to read again (airlock dev makes its own): end it and start it anew, or use airlock serve --config FILE (airlock plugin reload NAME relaunches one plugin)")
	}
	result, err := s.opts.Reload(r.Context())
	if err != nil {
		return coded(http.StatusUnprocessableEntity, "invalid_config", err.Error())
	}
	s.log.Info("configuration reloaded", "actor", op.Name)
	return writeJSON(w, http.StatusOK, result)
}
