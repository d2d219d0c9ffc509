package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// AgentSpec is what a mission keeps of its agent block for as long as it runs,
// whatever the configuration becomes meanwhile (architecture decision 14). It
// is stored as JSON and holds no secret: plugin configurations are in it by
// digest, secrets in those by where they are. Slots, queue and warm are not in
// it, they are the agent's and not the mission's; nor are the gate's rules,
// which apply live.
type AgentSpec struct {
	V               int          `json:"v"` // 1
	Agent           string       `json:"agent"`
	Isolation       InstanceSpec `json:"isolation"`
	Runtime         InstanceSpec `json:"runtime"`
	Gateways        []string     `json:"gateways,omitempty"`
	Revokers        []string     `json:"revokers,omitempty"`
	Revocation      string       `json:"revocation,omitempty"`
	CPU             float64      `json:"cpu,omitempty"`
	MemoryBytes     uint64       `json:"memory_bytes,omitempty"`
	Pids            uint64       `json:"pids,omitempty"`
	DiskBytes       uint64       `json:"disk_bytes,omitempty"`
	NetworkMode     string       `json:"network_mode"`
	NetworkAllow    []string     `json:"network_allow,omitempty"`
	WorkspaceMode   string       `json:"workspace_mode"`
	WorkspaceSource string       `json:"workspace_source,omitempty"`
	IntentGoal      string       `json:"intent_goal,omitempty"`
	// IntentConstraints is JSON-ready.
	IntentConstraints map[string]any `json:"intent_constraints,omitempty"`
	Restore           string         `json:"restore"`
	MaxResumes        int            `json:"max_resumes"`
	Checkpoint        string         `json:"checkpoint"`
	MaxCostMicroUSD   int64          `json:"max_cost_micro_usd,omitempty"`
	MaxTokens         int64          `json:"max_tokens,omitempty"`
	WallMS            int64          `json:"wall_ms,omitempty"`
	IdleMS            int64          `json:"idle_ms,omitempty"`
	ApprovalTimeoutMS int64          `json:"approval_timeout_ms"`
	ApprovalHoldMS    int64          `json:"approval_hold_ms"`
}

// InstanceSpec names an instance and pins its configuration.
type InstanceSpec struct {
	Ref          string `json:"ref"` // "isolation.docker.container"
	Driver       string `json:"driver"`
	ConfigDigest string `json:"config_digest"` // of Instance.ConfigDigest
}

// AgentSpec is the resolved spec of an agent.
func (c *Config) AgentSpec(a Agent) AgentSpec {
	s := AgentSpec{
		V: 1, Agent: a.Name, Isolation: c.instanceSpec(a.Isolation), Runtime: c.instanceSpec(a.Runtime),
		Gateways: a.Gateways, Revokers: a.Revokers, Revocation: a.Revocation,
		CPU: a.Resources.CPU, MemoryBytes: a.Resources.Memory, Pids: a.Resources.Pids, DiskBytes: a.Resources.Disk,
		NetworkMode: a.Network.Mode, NetworkAllow: a.Network.Allow, WorkspaceMode: a.Workspace.Mode, WorkspaceSource: a.Workspace.Source,
		Restore: a.Restore, MaxResumes: a.MaxResumes, Checkpoint: a.Checkpoint,
		MaxCostMicroUSD: a.Budget.MaxCostMicroUSD, MaxTokens: a.Budget.MaxTokens, WallMS: a.Budget.Wall.Milliseconds(), IdleMS: a.Budget.Idle.Milliseconds(),
		ApprovalTimeoutMS: a.ApprovalTimeout.Milliseconds(), ApprovalHoldMS: a.ApprovalHold.Milliseconds(),
	}
	if a.Intent != nil {
		s.IntentGoal, s.IntentConstraints = a.Intent.Goal, a.Intent.Constraints
	}
	return s
}

func (c *Config) instanceSpec(ref string) InstanceSpec {
	inst, ok := c.Instance(ref)
	if !ok {
		return InstanceSpec{Ref: ref}
	}
	return InstanceSpec{Ref: ref, Driver: inst.Driver, ConfigDigest: inst.ConfigDigest()}
}

// JSON is the spec as it is stored: the same bytes for the same spec.
func (s AgentSpec) JSON() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("config: agent spec: %v", err)) // every field is JSON-ready
	}
	return b
}

// SpecDigest is the SHA-256 of JSON, in hex.
func (s AgentSpec) SpecDigest() string { return digest(s.JSON()) }

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ConfigDigest is the SHA-256 of the config block's values, in hex: env() by
// value, secrets by where they are (a rotated secret changes nothing), the
// order and the way of writing left out.
func (i Instance) ConfigDigest() string {
	body, ok := i.Body.(*hclsyntax.Body)
	if !ok || body == nil {
		return digest([]byte("{}"))
	}
	ctx := i.byReference()
	values := map[string]json.RawMessage{}
	for name, attr := range body.Attributes {
		values[name] = json.RawMessage(`"(invalid)"`)
		val, diags := evalExpr(attr.Expr, ctx)
		if diags.HasErrors() {
			continue
		}
		if raw, err := ctyjson.Marshal(val, val.Type()); err == nil {
			values[name] = raw
		}
	}
	b, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("config: instance digest: %v", err)) // the values are JSON already
	}
	return digest(b)
}

// byReference is an evaluation context in which secret() is its own source.
func (i Instance) byReference() *hcl.EvalContext {
	eval := &evaluator{opts: Options{}.withDefaults()}
	if i.state != nil && i.state.eval != nil {
		eval = i.state.eval
	}
	ctx := eval.context(false)
	ctx.Functions["secret"] = function.New(&function.Spec{
		Params: []function.Parameter{{Name: "source", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.StringVal("secret(" + args[0].AsString() + ")"), nil
		},
	})
	return ctx
}
