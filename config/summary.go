package config

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// notShown stands for a value that a summary leaves out.
const notShown = "(not shown)"

// Summary is the configuration for status and for debug bundles, ready for
// JSON. Tokens are not in it. Values of plugin config blocks are shown only
// where a schema says that they are not sensitive; schemas may be nil, and
// answers nil for a plugin that it does not know.
func (c *Config) Summary(schemas func(ref string) *pluginv1.ConfigSchema) map[string]any {
	out := map[string]any{
		"name": c.Name, "data_dir": c.DataDir, "run_dir": c.RunDir, "uid_range": c.UIDRange, "orphan_ttl": c.OrphanTTL.String(),
		"listen":       map[string]any{"rest": c.Listen.REST, "ws": c.Listen.WS, "advertise": c.Listen.Advertise},
		"orchestrator": nil,
		"plugins":      map[string]any{"dir": c.Plugins.Dir, "lock": c.Plugins.Lock},
		"telemetry":    map[string]any{"prometheus": c.Telemetry.Prometheus, "metrics_open": c.Telemetry.MetricsOpen, "otlp_endpoint": c.Telemetry.OTLPEndpoint},
		"tls":          c.TLS != nil,
		"governance":   c.Governance.summary(),
		"retention":    nil,
	}
	if r := c.Retention; r != nil {
		out["retention"] = map[string]any{"journals": r.Journals.String(), "archive": r.Archive, "max_size": r.MaxSize, "states": r.States}
	}
	if o := c.Orchestrator; o != nil {
		out["orchestrator"] = map[string]any{"endpoint": o.Endpoint, "name": o.Name, "approvals": o.Approvals, "actor": o.Actor,
			"sandbox": o.Sandbox, "sandbox_hitl": o.SandboxHITL, "missions_json": o.MissionsJSON, "legacy_dir": o.LegacyDir}
	}
	instances := []any{}
	for _, i := range c.Instances {
		var schema *pluginv1.ConfigSchema
		if schemas != nil {
			schema = schemas(i.Ref())
		}
		instances = append(instances, map[string]any{"ref": i.Ref(), "config": i.shown(schema), "config_digest": i.ConfigDigest(), "invalid": i.Invalid})
	}
	agents := []any{}
	for _, a := range c.Agents {
		agents = append(agents, map[string]any{"spec": c.AgentSpec(a), "slots": a.Slots, "queue": a.Queue, "warm": a.Warm, "invalid": a.Invalid})
	}
	operators := []any{}
	for _, o := range c.Operators {
		operators = append(operators, map[string]any{"name": o.Name, "role": o.Role, "uids": o.UIDs, "agents": o.Agents, "token_file": o.TokenFile, "token_env": o.TokenEnv})
	}
	gateways := []any{}
	for _, g := range c.Gateways {
		gateways = append(gateways, g.summary())
	}
	out["instances"], out["agents"], out["gateways"], out["operators"] = instances, agents, gateways, operators
	return out
}

func (g Governance) summary() map[string]any {
	return map[string]any{
		"mode": g.Mode, "on_failure": g.OnFailure, "policy_default": g.PolicyDefault, "restore": g.Restore, "max_resumes": g.MaxResumes,
		"approval_timeout": g.ApprovalTimeout.String(), "approval_hold": g.ApprovalHold.String(),
		"budget": map[string]any{"max_cost_micro_usd": g.Budget.MaxCostMicroUSD, "max_tokens": g.Budget.MaxTokens, "wall": g.Budget.Wall.String(), "idle": g.Budget.Idle.String()},
		"head":   map[string]any{"file": g.Head.File, "key_file": g.Head.KeyFile, "url": g.Head.URL},
		"rules":  g.RulesJSON(),
	}
}

// shown is the config block's attributes with the values that may be shown.
func (i Instance) shown(schema *pluginv1.ConfigSchema) map[string]any {
	out := map[string]any{}
	body, ok := i.Body.(*hclsyntax.Body)
	if !ok || body == nil {
		return out
	}
	for name := range body.Attributes {
		out[name] = notShown
	}
	for _, attr := range schema.GetAttributes() {
		src := body.Attributes[attr.GetName()]
		if src == nil || attr.GetSensitive() || callsSecret(src.Expr) {
			continue
		}
		val, diags := evalExpr(src.Expr, i.byReference())
		if diags.HasErrors() {
			continue
		}
		if raw, err := ctyjson.Marshal(val, val.Type()); err == nil {
			out[attr.GetName()] = json.RawMessage(raw)
		}
	}
	return out
}

// Digest is a hash of everything in the configuration but the values of
// secrets: two configurations that mean the same have the same digest, however
// they are written. Of a block that cannot be used only that counts, not why:
// the reason names lines.
func (c *Config) Digest() string {
	view := *c
	view.Instances, view.Agents, view.Gateways = slices.Clone(c.Instances), slices.Clone(c.Agents), slices.Clone(c.Gateways)
	for i := range view.Gateways {
		view.Gateways[i].Invalid = mark(c.Gateways[i].Invalid)
	}
	for i := range view.Instances {
		view.Instances[i].Invalid = mark(c.Instances[i].Invalid)
	}
	for i := range view.Agents {
		view.Agents[i].Invalid = mark(c.Agents[i].Invalid)
	}
	b, err := json.Marshal(view.Summary(nil))
	if err != nil {
		panic(fmt.Sprintf("config: digest: %v", err)) // a summary is JSON-ready
	}
	return digest(b)
}

func mark(reason string) string {
	if reason == "" {
		return ""
	}
	return "invalid"
}
