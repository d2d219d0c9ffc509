package config

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// builder fills a Config from decoded nodes.
type builder struct {
	eval  *evaluator
	cfg   *Config
	diags hcl.Diagnostics

	baseHold time.Duration // approval_hold of the host before approval_timeout bounds it
}

// build is the Config that the top level describes, and what is wrong with it.
// Errors inside an agent or plugin block become warnings and quarantine it,
// unless the options say strict.
func build(root *node, eval *evaluator) (*Config, hcl.Diagnostics) {
	b := &builder{eval: eval, cfg: &Config{eval: eval, root: root}}
	b.collect(root)
	b.host(root)
	b.instances(root)
	b.gateways(root)
	b.governance(root)
	b.directories(root)
	b.agents(root)
	b.operators(root)
	return b.cfg, b.diags
}

func (b *builder) error(d *hcl.Diagnostic) { b.diags = append(b.diags, d) }

// quarantined are the blocks whose errors stay their own.
func quarantined(name string) bool {
	return name == "agent" || name == kindGateway || name == KindIsolation || name == KindRuntime || name == KindRevoker
}

// collect takes over the diagnostics of a node and of everything in it that is
// not quarantined.
func (b *builder) collect(n *node) {
	b.diags = append(b.diags, n.diags...)
	for _, c := range n.blocks {
		if n.path != "" || !quarantined(c.spec.name) {
			b.collect(c)
		}
	}
}

// everything is a quarantined node's diagnostics, with those of its blocks.
func everything(n *node) hcl.Diagnostics {
	diags := append(hcl.Diagnostics{}, n.diags...)
	for _, c := range n.blocks {
		diags = append(diags, everything(c)...)
	}
	return diags
}

// quarantine passes on what is wrong inside of one block, and returns the
// reason why it cannot be used; empty when it can.
func (b *builder) quarantine(n *node, diags hcl.Diagnostics) string {
	reason := ""
	for _, d := range diags {
		if d.Severity == hcl.DiagError && !b.eval.opts.Strict {
			w := *d
			w.Severity = hcl.DiagWarning
			w.Summary = n.title() + " is not used: " + lowerFirst(d.Summary)
			d = &w
		}
		b.error(d)
	}
	for _, d := range diags {
		if reason == "" && (d.Severity == hcl.DiagError) {
			reason = d.Detail
			if d.Subject != nil {
				reason = strings.TrimSuffix(reason, ".") + " (" + place(*d.Subject) + ")"
			}
		}
	}
	return reason
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// section is the single block of a name, decoded from nothing when it is not
// there, so that its defaults apply.
func (b *builder) section(n *node, name string) *node {
	if s := n.one(name); s != nil {
		return s
	}
	path := name
	if n.path != "" {
		path = n.path + "." + name
	}
	return newDecoder(b.eval).decode(n.spec.block(name), path, nil, n.rng, emptyBody(n.rng))
}

func (b *builder) host(root *node) {
	c := b.cfg
	c.DataDir, c.RunDir = get[string](root, "data_dir"), get[string](root, "run_dir")
	if r := get[[]uint32](root, "uid_range"); len(r) == 2 {
		c.UIDRange = [2]uint32{r[0], r[1]}
		if r[0] > r[1] {
			b.error(errorAt(root.at("uid_range"), "Bad value", "The attribute \"uid_range\": the first uid is larger than the last one."))
		}
	}
	c.OrphanTTL = get[time.Duration](root, "orphan_ttl")

	p := b.section(root, "plugins")
	c.Plugins = Plugins{Dir: get[string](p, "dir"), Lock: get[string](p, "lock")}
	t := b.section(root, "telemetry")
	c.Telemetry = Telemetry{Prometheus: get[bool](t, "prometheus"), MetricsOpen: get[bool](t, "metrics_open"), OTLPEndpoint: get[string](t, "otlp_endpoint")}
	if t := root.one("tls"); t != nil {
		c.TLS = &TLS{CertFile: get[string](t, "cert_file"), KeyFile: get[string](t, "key_file"), ClientCAFile: get[string](t, "client_ca_file")}
	}
	b.retention(root.one("retention"))
	b.listen(b.section(root, "listen"))
	b.orchestrator(root)
	b.name(root)
}

func (b *builder) retention(n *node) {
	if n == nil {
		return
	}
	r := &Retention{Journals: get[time.Duration](n, "journals"), Archive: get[string](n, "archive"), MaxSize: int64(min(get[uint64](n, "max_size"), math.MaxInt64)), States: get[[]string](n, "states")}
	ends := []string{"done", "failed", "aborted"}
	for _, state := range r.States {
		if !slices.Contains(ends, state) {
			b.error(errorAt(n.at("states"), "Bad value", "The attribute \"states\": %q is no end of a mission; the ends are \"done\", \"failed\" and \"aborted\".", state))
		}
	}
	b.cfg.Retention = r
}

func (b *builder) listen(n *node) {
	l := Listen{REST: get[string](n, "rest"), WS: get[string](n, "ws"), Advertise: get[string](n, "advertise")}
	b.cfg.Listen = l
	for _, attr := range []string{"rest", "ws"} {
		host, _, err := net.SplitHostPort(get[string](n, attr))
		if err == nil && !loopback(host) && b.cfg.TLS == nil {
			b.error(errorAt(n.at(attr), "Listener without TLS",
				"%s is not a loopback address, and there is no tls block: tokens would cross the network in the clear. Listen on 127.0.0.1.", host))
		}
	}
	if l.REST == l.WS && l.REST != "" && !strings.HasSuffix(l.REST, ":0") {
		b.error(errorAt(n.at("ws"), "Same address twice", "rest and ws cannot both listen on %s.", l.WS))
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost"
}

// orchestrator fills what the block leaves out from AIWG_SERVE_ENDPOINT and
// AIWG_SERVE_NAME; without an endpoint there is no orchestrator.
func (b *builder) orchestrator(root *node) {
	n := b.section(root, "orchestrator")
	o := Orchestrator{
		Endpoint: get[string](n, "endpoint"), Name: get[string](n, "name"), Approvals: get[string](n, "approvals"), Actor: get[string](n, "actor"),
		Sandbox: get[bool](n, "sandbox"), SandboxHITL: get[bool](n, "sandbox_hitl"), MissionsJSON: get[bool](n, "missions_json"), LegacyDir: get[string](n, "legacy_dir"),
	}
	if !n.isSet("endpoint") {
		o.Endpoint, _ = b.eval.opts.LookupEnv("AIWG_SERVE_ENDPOINT")
		if err := orEmpty(httpURL)(o.Endpoint); err != nil {
			b.error(errorAt(n.rng, "Bad value", "The environment variable AIWG_SERVE_ENDPOINT %s.", err))
		}
	}
	if !n.isSet("name") {
		if o.Name, _ = b.eval.opts.LookupEnv("AIWG_SERVE_NAME"); o.Name == "" {
			o.Name = "agentic-sandbox"
		}
		if !agentForm.MatchString(o.Name) {
			b.error(errorAt(n.rng, "Bad value", "The environment variable AIWG_SERVE_NAME is not a name: 1 to 128 letters, digits, dots, dashes and underscores."))
		}
	}
	if o.Endpoint = strings.TrimRight(o.Endpoint, "/"); o.Endpoint != "" {
		b.cfg.Orchestrator = &o
	}
}

func (b *builder) name(root *node) {
	c := b.cfg
	if c.Name = get[string](root, "name"); !root.isSet("name") {
		name, err := b.eval.opts.Hostname()
		if err != nil || !agentForm.MatchString(name) {
			b.error(errorAt(root.rng, "Missing attribute", "The hostname cannot be used as this host's name. Set it: name = \"build-box-1\"."))
			return
		}
		c.Name = name
	}
	if c.Orchestrator != nil && len(c.Orchestrator.Name)+1+len(c.Name) > maxExecutorName {
		b.error(errorAt(root.at("name"), "Name too long",
			"The host registers as %s, which is longer than %d characters. Set a shorter name.", quote(c.Orchestrator.Name+"-"+c.Name), maxExecutorName))
	}
}

// maxExecutorName is the contract's limit on an executor's name.
const maxExecutorName = 128

// ExecutorName is the name that the host registers with: the orchestrator's
// part, a dash and the host's, at most 128 characters. Empty without an
// orchestrator.
func (c *Config) ExecutorName() string {
	if c.Orchestrator == nil {
		return ""
	}
	return c.Orchestrator.Name + "-" + c.Name
}

// under says that path is dir or lies in it.
func under(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// instances fills the plugin blocks in.
func (b *builder) instances(root *node) {
	seen := map[string]int{}
	for _, n := range root.blocks {
		if !quarantined(n.spec.name) || n.spec.name == "agent" || n.spec.name == kindGateway {
			continue
		}
		inst := Instance{Kind: n.spec.name, Driver: n.labels[0], Name: n.labels[1], Range: n.rng, Body: emptyBody(n.rng), state: &instanceState{eval: b.eval}}
		diags := everything(n)
		if c := n.one("config"); c != nil {
			inst.Body = c.body
			diags = append(diags, checkPluginBody(c.body)...)
		}
		if i, dup := seen[inst.Ref()]; dup {
			first := &b.cfg.Instances[i]
			diags = append(diags, errorAt(n.rng, "Block given twice", "There is a block %s at %s already.", n.title(), place(first.Range)))
			first.Invalid = b.quarantine(n, diags)
			continue
		}
		inst.Invalid = b.quarantine(n, diags)
		seen[inst.Ref()] = len(b.cfg.Instances)
		b.cfg.Instances = append(b.cfg.Instances, inst)
	}
}

// Instance is the instance with a ref such as "isolation.docker.container".
func (c *Config) Instance(ref string) (Instance, bool) {
	for _, i := range c.Instances {
		if i.Ref() == ref {
			return i, true
		}
	}
	return Instance{}, false
}

func (b *builder) refs(kind string, root *node) []string {
	var out []string
	for _, n := range root.all(kind) {
		out = append(out, fmt.Sprintf("%s.%s", kind, strings.Join(n.labels, ".")))
	}
	return out
}
