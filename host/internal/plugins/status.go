package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Status is how one instance is, for `airlock status` and the API.
type Status struct {
	Ref      string `json:"ref"`
	Name     string `json:"name"` // the instance's label
	Kind     string `json:"kind"`
	Driver   string `json:"driver"`
	File     string `json:"file"`
	Version  string `json:"version,omitempty"`
	Summary  string `json:"summary,omitempty"`
	State    State  `json:"state"`
	Code     Code   `json:"code,omitempty"` // of a quarantine or a restart
	Reason   string `json:"reason,omitempty"`
	PID      int    `json:"pid,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	Restarts int    `json:"restarts"`
	LastExit string `json:"last_exit,omitempty"`

	Since     time.Time  `json:"since"` // of the state
	StartedAt *time.Time `json:"started_at,omitempty"`
	RetryAt   *time.Time `json:"retry_at,omitempty"`

	Attributes   map[string]string `json:"attributes,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Features     []string          `json:"features,omitempty"`
	Contracts    []string          `json:"contracts,omitempty"`
	Needs        []Need            `json:"needs,omitempty"`
	Schema       []Attribute       `json:"schema,omitempty"`
}

// Need is one thing that a plugin uses outside of its process.
type Need struct {
	What   string `json:"what"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

// Attribute is one attribute of a plugin's config block.
type Attribute struct {
	Name        string          `json:"name"`
	Type        string          `json:"type"`
	Default     json.RawMessage `json:"default,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Sensitive   bool            `json:"sensitive,omitempty"`
	Description string          `json:"description"`
}

// Status is how every instance is, in config order.
func (c *Catalog) Status() []Status {
	all := c.all()
	out := make([]Status, 0, len(all))
	for _, i := range all {
		out = append(out, i.status())
	}
	return out
}

// Capabilities of an instance when it takes work, else why it does not.
func (c *Catalog) Capabilities(ref string) ([]string, error) {
	i := c.find(ref)
	if i == nil {
		return nil, fmt.Errorf("%s: %w", ref, ErrUnknown)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	state, reason := i.viewState()
	if state != Healthy && state != Degraded {
		return nil, fmt.Errorf("%s is %s: %s", ref, state, reason)
	}
	return slices.Clone(i.current.description.GetCapabilities()), nil
}

// Features that the instance's plugin declares; none while it has no process.
func (c *Catalog) Features(ref string) []string {
	i := c.find(ref)
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.features)
}

// Attributes that the instance's last health message has; none while it has no
// process.
func (c *Catalog) Attributes(ref string) map[string]string {
	i := c.find(ref)
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.health.GetAttributes())
}

// Needs gives what the instance's plugin uses outside of its own process, in its
// own words; nil when it is not known.
func (c *Catalog) Needs(ref string) []*pluginv1.Need {
	i := c.find(ref)
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.needs)
}

// Build is the version and the SHA-256 of the program that the instance runs
// with; empty while it has none.
func (c *Catalog) Build(ref string) (version, sha256 string) {
	i := c.find(ref)
	if i == nil {
		return "", ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil {
		version = clean(i.current.description.GetVersion(), 64)
	}
	if i.image != nil {
		sha256 = i.image.sum
	}
	return version, sha256
}

func (i *instance) status() Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := Status{
		Ref: i.ref, Name: i.spec.Name, Kind: i.spec.Kind, Driver: i.spec.Driver,
		File: FileName(i.spec.Kind, i.spec.Driver), Restarts: i.restarts, LastExit: i.lastExit, Since: i.since,
	}
	s.State, s.Reason = i.viewState()
	if i.fault != nil {
		s.Code = i.fault.Code
	}
	if !i.retryAt.IsZero() {
		at := i.retryAt
		s.RetryAt = &at
	}
	if i.image != nil {
		s.SHA256 = i.image.sum
	}
	if i.health != nil {
		s.Attributes = maps.Clone(i.health.GetAttributes())
	}
	if p := i.current; p != nil {
		at := p.started
		s.PID, s.StartedAt = p.pid, &at
		s.describe(p.description)
	}
	return s
}

// Described is the status of a plugin that runs nowhere: only what it says of
// itself.
func Described(d *pluginv1.DescribeResponse) Status {
	s := Status{Kind: strings.ToLower(strings.TrimPrefix(d.GetKind().String(), "KIND_")), Driver: clean(d.GetName(), 64)}
	s.File = FileName(s.Kind, s.Driver)
	s.describe(d)
	return s
}

func (s *Status) describe(d *pluginv1.DescribeResponse) {
	s.Version, s.Summary = clean(d.GetVersion(), 64), clean(d.GetSummary(), 1024)
	s.Capabilities, s.Features, s.Contracts = d.GetCapabilities(), d.GetFeatures(), d.GetContracts()
	for _, n := range d.GetNeeds() {
		s.Needs = append(s.Needs, Need{clean(n.GetWhat(), 64), clean(n.GetValue(), 1024), clean(n.GetReason(), 1024)})
	}
	for _, a := range d.GetSchema().GetAttributes() {
		out := Attribute{
			Name: a.GetName(), Type: a.GetType(), Required: a.GetRequired(),
			Sensitive: a.GetSensitive(), Description: clean(a.GetDescription(), 1024),
		}
		if json.Valid([]byte(a.GetDefaultJson())) {
			out.Default = json.RawMessage(a.GetDefaultJson())
		}
		s.Schema = append(s.Schema, out)
	}
}
