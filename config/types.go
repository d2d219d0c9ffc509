// Package config holds Airlock's configuration: its types, and how HCL becomes
// them. It imports proto for the plugins' config schemas and nothing of the
// host. The one idea: a Config is complete and valid or it does not exist; a
// plugin's own block stays an undecoded body until its schema is known.
package config

import (
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Config is a whole configuration, defaults filled in.
type Config struct {
	Name      string
	DataDir   string
	RunDir    string
	UIDRange  [2]uint32
	OrphanTTL time.Duration

	Listen       Listen
	Orchestrator *Orchestrator // nil: not configured
	Plugins      Plugins
	Instances    []Instance // isolation, runtime and revoker blocks, in config order
	Agents       []Agent    // in config order; the first one is the default
	Gateways     []Gateway  // in config order
	Governance   Governance
	Operators    []Operator
	TLS          *TLS
	Telemetry    Telemetry
	Retention    *Retention // nil: everything is kept

	eval *evaluator
	root *node // what it was built from; nil for one that was made
}

// Listen is where the host listens.
type Listen struct {
	REST      string // host:port
	WS        string // host:port
	Advertise string // host name or address put into transport_endpoints
}

// Orchestrator is the link to `aiwg serve`.
type Orchestrator struct {
	Endpoint     string // http(s) base URL, without a trailing slash
	Name         string
	Approvals    string // "show" | "answer"
	Actor        string
	Sandbox      bool
	SandboxHITL  bool
	MissionsJSON bool
	LegacyDir    string // directory of an older sandbox's identity and missions.json; empty: none
}

// Plugins says where plugins are found.
type Plugins struct {
	Dir  string
	Lock string // lock file; enforced when the file exists
}

// Kinds of plugin instances, as in HCL block names (and KindPolicy).
const (
	KindIsolation = "isolation"
	KindRuntime   = "runtime"
	KindRevoker   = "revoker"
)

// Instance is one plugin block: `isolation "docker" "container" {}`.
type Instance struct {
	Kind   string    // KindIsolation, KindRuntime, KindRevoker or KindPolicy
	Driver string    // the plugin's name: executable airlock-KIND-DRIVER
	Name   string    // the instance's own label
	Body   hcl.Body  // its config block, undecoded; never nil
	Range  hcl.Range // of the block's header
	// Invalid says why the block cannot be used; empty: it can. Every agent that
	// refers to it is quarantined too. The labels of an invalid block may be
	// anything: they are for showing, not for file names.
	Invalid string

	state *instanceState
}

// Ref is how an instance is named in HCL: "isolation.docker.container".
func (i Instance) Ref() string { return i.Kind + "." + i.Driver + "." + i.Name }

// Agent is one agent block.
type Agent struct {
	Name       string
	Isolation  string // Instance.Ref of an isolation instance
	Runtime    string // Instance.Ref of a runtime instance
	Gateways   []string
	Revokers   []string // Instance.Refs
	Revocation string   // "" | "none"
	Slots      int      // missions at once
	Queue      int      // missions that may wait
	Warm       int      // cells kept ready
	Resources  Resources
	Network    Network
	Workspace  Workspace
	Intent     *Intent
	Restore    string // "auto" | "latched"
	MaxResumes int
	Budget     Budget
	Checkpoint string // "off" | "on-suspend"

	ApprovalTimeout time.Duration
	ApprovalHold    time.Duration
	Range           hcl.Range
	// Invalid says why the block cannot be used; such an agent is quarantined
	// and the host starts without it.
	Invalid string
}

// Resources are an agent's limits; 0 = none.
type Resources struct {
	CPU    float64
	Memory uint64 // bytes
	Pids   uint64
	Disk   uint64 // bytes
}

// Network is an agent's network.
type Network struct {
	Mode  string // "none" | "gateway" | "open"
	Allow []string
}

// Workspace says what files a mission works on.
type Workspace struct {
	Source string
	Mode   string // "copy" | "read-only" | "read-write" | "empty"
}

// Intent is a goal with constraints, as JSON-ready values.
type Intent struct {
	Goal        string
	Constraints map[string]any
}

// Budget limits a mission; 0 = none.
type Budget struct {
	MaxCostMicroUSD int64
	MaxTokens       int64
	Wall            time.Duration
	Idle            time.Duration
}

// Governance is the host-wide governance block.
type Governance struct {
	Mode            string // "govern" | "observe"
	OnFailure       string // "fail_closed" | "fail_open"
	PolicyDefault   string // "allow" | "deny"
	ApprovalTimeout time.Duration
	ApprovalHold    time.Duration
	Restore         string
	MaxResumes      int
	Budget          Budget
	Head            Head

	// The rules of the gate, in config order.
	Policy        []PolicyRule
	PolicyPlugins []PolicyPlugin
	Risk          *Risk // nil: risk is not rated
	Bindings      []Binding
	Approve       []PolicyRule
	Redact        []Redaction
}

// Head says where signed heads go.
type Head struct {
	File    string
	KeyFile string
	URL     string
}

// Operator is one operator block.
type Operator struct {
	Name      string
	TokenFile string
	TokenEnv  string
	UIDs      []uint32
	Role      string   // "operator" | "viewer"
	Agents    []string // empty: all
	Range     hcl.Range

	readToken func(path string) ([]byte, error)
}

// TLS is the listeners' certificate.
type TLS struct {
	CertFile     string
	KeyFile      string
	ClientCAFile string
}

// Telemetry says what is measured and who may read it.
type Telemetry struct {
	Prometheus   bool
	MetricsOpen  bool
	OTLPEndpoint string
}

// Retention says when missions that are over are archived and removed.
type Retention struct {
	Journals time.Duration // after their end
	Archive  string        // directory of the bundles
	MaxSize  int64         // bytes of the store above which the oldest go earlier; 0: no limit
	States   []string      // ends that are archived: done, failed, aborted
}
