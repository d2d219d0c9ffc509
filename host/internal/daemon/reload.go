package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/api"
	"github.com/airlock-host/airlock/host/internal/governance/gate"
	"github.com/airlock-host/airlock/host/internal/plugins"
)

// Loader reads the configuration again, from where it was read at the start.
type Loader func() (*config.Config, hcl.Diagnostics)

// Report is what a reload did.
type Report struct {
	Path    string          `json:"path"` // of the configuration
	Changes []config.Change `json:"changes"`
	Counts  struct {
		Applied       int `json:"applied"`
		NextMission   int `json:"next_mission"`
		RestartNeeded int `json:"restart_needed"`
	} `json:"counts"`
	// RulesTold is how many live tasks had a new epoch because of other rules.
	RulesTold int `json:"rules_told"`
	// Draining are instances and gateways that are not in the configuration any
	// more, and stay until the missions and cells that use them are gone.
	Draining []string `json:"draining"`
	Warnings []string `json:"warnings"`
}

// running is the configuration that a host runs with.
type running struct {
	mu       sync.Mutex // one reload at a time
	cfg      atomic.Pointer[config.Config]
	settings map[string]config.Setting // under mu: what counts, with what only a restart changes as it was
	drained  chan struct{}             // closed when nobody waits for instances to be drained; under mu
	refused  atomic.Pointer[string]    // why the last reload was refused
	applied  atomic.Int64              // reloads
	refusals atomic.Int64              // of reloads
	approve  atomic.Bool               // orchestrator.approvals = "answer"
	draining atomic.Pointer[[]string]
	tls      atomic.Pointer[api.Certificates]
}

// reload reads the configuration again and puts in force what can be. When the
// new one cannot be used the old one stays whole, and the error says why with
// file and line.
func (h *host) reload(ctx context.Context) (*Report, error) {
	h.now.mu.Lock()
	defer h.now.mu.Unlock()
	r, err := h.reloadLocked(context.WithoutCancel(ctx)) // it is not left half done
	if err != nil {
		why := fmt.Sprintf("the configuration was changed and cannot be used, the host goes on with the one before (%s): %v", time.Now().Format(time.DateTime), err)
		h.now.refused.Store(&why)
		h.now.refusals.Add(1)
		h.log.Error("the configuration is not reloaded; the old one stays", "error", err)
		return nil, err
	}
	h.now.refused.Store(nil)
	h.now.applied.Add(1)
	for _, c := range r.Changes {
		h.log.Info("configuration changed", "attribute", c.Path, "change", c.Change, "effect", string(c.Effect), "at", c.At, "note", c.Note)
	}
	h.log.Info("configuration reloaded", "changes", len(r.Changes), "restart_needed", r.Counts.RestartNeeded, "tasks_with_new_rules", r.RulesTold)
	return r, nil
}

func (h *host) reloadLocked(ctx context.Context) (*Report, error) {
	old := h.now.cfg.Load()
	p, err := h.prepare(ctx, old)
	if err != nil {
		return nil, err
	}
	// From here on nothing fails as a whole.
	r := &Report{Path: h.opts.Path, Changes: p.changes, Warnings: p.warnings}
	h.apply(ctx, old, p, r)
	h.now.settings = config.Keep(h.now.settings, p.settings)
	for i := range r.Changes {
		switch r.Changes[i].Effect {
		case config.Applied:
			r.Counts.Applied++
		case config.NextMission:
			r.Counts.NextMission++
		default:
			r.Counts.RestartNeeded++
		}
	}
	if r.Changes == nil {
		r.Changes = []config.Change{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	return r, nil
}

// prepared is a configuration of which everything was tried that can fail.
type prepared struct {
	cfg       *config.Config
	rules     *gate.Rules
	operators *api.Operators
	tls       *api.Certificates // nil: no TLS
	settings  map[string]config.Setting
	changes   []config.Change
	warnings  []string
}

// prepare loads the configuration and tries it; it changes nothing.
func (h *host) prepare(ctx context.Context, old *config.Config) (*prepared, error) {
	cfg, diags := h.opts.Load()
	if cfg == nil {
		return nil, errors.New(diagnose(diags, hcl.DiagError))
	}
	p := &prepared{cfg: cfg}
	if bad := newlyBad(old, cfg); len(bad) > 0 {
		return nil, errors.New(strings.Join(bad, "\n"))
	}
	if text := diagnose(diags, hcl.DiagWarning); text != "" {
		p.warnings = strings.Split(text, "\n")
	}
	var err error
	if p.rules, err = compileRules(cfg, old.DataDir); err != nil {
		return nil, err
	}
	if p.operators, err = api.LoadOperators(cfg.Operators, os.Getenv); err != nil {
		return nil, err
	}
	if cfg.TLS != nil && old.TLS != nil {
		if p.tls, err = api.LoadCertificates(old.TLS); err != nil {
			return nil, err
		}
	}
	cfg.Adopt(old) // what the plugins have said of their attributes
	// Only what is new or other is asked: a plugin that is broken anyway must not
	// keep an operator from changing something else.
	var ask []config.Instance
	for _, i := range instances(cfg) {
		was, known := find(instances(old), i.Ref())
		if i.Invalid == "" && (!known || was.Invalid != "" || was.ConfigDigest() != i.ConfigDigest()) {
			ask = append(ask, i)
		}
	}
	if found := h.catalog.Check(ctx, ask); found.HasErrors() {
		return nil, errors.New(diagnose(found, hcl.DiagError))
	}
	for _, d := range cfg.CheckPlaces() {
		p.warnings = append(p.warnings, diagnose(hcl.Diagnostics{d}, d.Severity))
	}
	p.settings = cfg.Settings() // the plugins have said by now what may be shown
	p.changes = config.Changes(h.now.settings, p.settings)
	return p, h.dialer.gateway.Check(apis(cfg.Gateways))
}

// apply puts a prepared configuration in force.
func (h *host) apply(ctx context.Context, old *config.Config, p *prepared, r *Report) {
	next := mergeFixed(old, p.cfg)
	stay, err := h.engine.InUse(ctx)
	if err != nil {
		r.Warnings = append(r.Warnings, "what missions use could not be read, so that nothing is taken away: "+err.Error())
	}
	inUse := func(ref string) bool { return err != nil || stay[ref] }
	draining := addDraining(old, next, inUse)
	if err := h.dialer.gateway.Configure(apis(next.Gateways)); err != nil { // it was tried before
		r.Warnings = append(r.Warnings, "gateways: "+err.Error())
	}
	// Policy plugins of the old rules stay until no call is judged by those.
	both := slices.Clone(instances(next))
	for _, i := range instances(old) {
		if _, ok := find(both, i.Ref()); !ok {
			both = append(both, i)
		}
	}
	h.noteFailures(h.catalog.Apply(ctx, both), r)
	h.engine.Configure(next, remade(old, next))
	r.RulesTold = h.engine.SetRules(p.rules)
	if len(both) != len(instances(next)) {
		h.catalog.Apply(ctx, instances(next))
	}
	h.operators.Store(p.operators)
	h.server.SetOperators(p.operators)
	if err := api.OpenSocket(h.cfg.RunDir, p.operators.UIDs()); err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	if p.tls != nil {
		h.now.tls.Store(p.tls)
	}
	h.now.approve.Store(next.Orchestrator != nil && next.Orchestrator.Approvals == "answer")
	h.now.cfg.Store(next)
	r.Draining = draining
	for i := range r.Changes {
		if c := &r.Changes[i]; slices.Contains(draining, c.Path) {
			c.Note = "missions and cells that use it go on; it is gone when they are"
		}
	}
	h.now.draining.Store(&draining)
	h.awaitDrained(draining)
}

// noteFailures tells of plugin configs that were not taken over.
func (h *host) noteFailures(failed map[string]error, r *Report) {
	for ref, err := range failed {
		var restart *plugins.NeedsRestart
		if !errors.As(err, &restart) {
			r.Warnings = append(r.Warnings, ref+": "+err.Error())
			continue
		}
		for i := range r.Changes {
			if c := &r.Changes[i]; c.Ref == ref {
				c.Effect = config.RestartNeeded
				c.Note = fmt.Sprintf("of the plugin alone: airlock plugin reload %s (%s)", ref, restart.Reason)
			}
		}
	}
	slices.Sort(r.Warnings)
}

// drainPoll is how often it is looked whether what drains is still in use.
const drainPoll = 2 * time.Second

// awaitDrained takes away what drains once nobody uses it any more.
func (h *host) awaitDrained(refs []string) {
	if h.now.drained != nil {
		close(h.now.drained)
		h.now.drained = nil
	}
	if len(refs) == 0 {
		return
	}
	over := make(chan struct{})
	h.now.drained = over
	h.background.Go(func() {
		tick := time.NewTicker(drainPoll)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-h.life.Done():
				return
			case <-tick.C:
			}
			if h.dropDrained(over) {
				return
			}
		}
	})
}

// dropDrained takes away what is not in use any more; it says whether nothing
// is left to wait for.
func (h *host) dropDrained(over chan struct{}) bool {
	h.now.mu.Lock()
	defer h.now.mu.Unlock()
	if h.now.drained != over { // a reload came in between
		return true
	}
	used, err := h.engine.InUse(h.life)
	if err != nil {
		return false
	}
	list := *h.now.draining.Load()
	left := slices.DeleteFunc(slices.Clone(list), func(ref string) bool { return !used[ref] })
	if len(left) == len(list) {
		return false
	}
	next := *h.now.cfg.Load()
	gone := func(ref string) bool { return slices.Contains(list, ref) && !slices.Contains(left, ref) }
	next.Instances = slices.DeleteFunc(slices.Clone(next.Instances), func(i config.Instance) bool { return gone(i.Ref()) })
	next.Gateways = slices.DeleteFunc(slices.Clone(next.Gateways), func(g config.Gateway) bool { return gone(g.Ref()) })
	h.engine.Configure(&next, nil)
	h.catalog.Apply(h.life, instances(&next))
	if err := h.dialer.gateway.Configure(apis(next.Gateways)); err != nil {
		h.log.Error("gateways could not be taken away", "error", err)
	}
	h.now.cfg.Store(&next)
	h.now.draining.Store(&left)
	h.log.Info("what was removed from the configuration is not used any more and is gone", "left", len(left))
	return len(left) == 0
}

// watchHangup reloads whenever it is asked to by a signal.
func (h *host) watchHangup() {
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.opts.Hangup:
			_, _ = h.reload(h.life) // it says in the log how it went
		}
	}
}

// shown is the answer of GET /api/v1/config.
type shown struct {
	Path     string           `json:"path"`
	Settings []config.Setting `json:"settings"`
}

func (h *host) showConfig() any {
	h.now.mu.Lock()
	defer h.now.mu.Unlock()
	return shown{Path: h.opts.Path, Settings: config.SettingList(h.now.settings)}
}
