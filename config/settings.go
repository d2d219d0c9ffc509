package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/config/glob"
	"github.com/airlock-host/airlock/config/pointer"
)

// Setting is one thing that a configuration says: an attribute, that a block is
// there, or in which order blocks stand. It holds no secret and may be shown.
type Setting struct {
	// Path names it with the labels of its blocks: "agent.agent-01.resources.memory".
	Path string `json:"path"`
	// Text is what stands in the file; of what must not be shown a stand-in.
	Text string `json:"text"`
	// Digest is of the value; empty where the value is a secret, or may be one.
	Digest string `json:"digest,omitempty"`
	// Outside says that the value comes from env() or secret(), so that another
	// machine, user or moment may read another one.
	Outside bool   `json:"outside,omitempty"`
	Effect  Effect `json:"effect"`
	At      string `json:"at"` // file:line

	// Default is the digest of the value that holds where nothing is set.
	Default string `json:"default,omitempty"`

	// ours is the digest of the value, a secret's too; it never leaves the process.
	ours  string
	block bool     // that a block is there
	order []string // of blocks
	ref   string   // of the plugin instance that it belongs to
}

// Settings are all that the configuration sets, by path.
func (c *Config) Settings() map[string]Setting {
	s := settings{out: map[string]Setting{}, eval: c.evaluator(), cfg: c}
	if c.root != nil {
		s.node(c.root, "")
	}
	return s.out
}

type settings struct {
	out  map[string]Setting
	eval *evaluator
	cfg  *Config
}

func (s *settings) put(x Setting) { s.out[x.Path] = x }

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ".")
}

func (s *settings) node(n *node, at string) {
	for i := range n.spec.attrs {
		spec := &n.spec.attrs[i]
		if v := n.attrs[spec.name]; v.set {
			s.attr(n, spec, v, join(at, spec.name))
		}
	}
	order := map[string][]string{}
	for _, b := range n.blocks {
		path := join(append([]string{at, b.spec.name}, b.labels...)...)
		if len(b.labels) > 0 || marker(b.path) {
			s.put(Setting{Path: path, Text: b.title(), Digest: "block", ours: "block", block: true, Effect: effectOf(b.path, ""), At: lineOf(b.rng)})
		}
		if len(b.labels) > 0 {
			order[b.spec.name] = append(order[b.spec.name], join(b.labels...))
		}
		if b.spec.plugin {
			s.plugin(n, b, path)
			continue
		}
		s.node(b, path)
	}
	for name, list := range order {
		text := strings.Join(list, ", ")
		s.put(Setting{Path: join(at, name) + " (order)", Text: text, Digest: hash(text), ours: hash(text), order: list,
			Effect: effectOf(join(n.path, name), ""), At: lineOf(n.rng)})
	}
}

// marker says that it counts whether such a block is there, whatever is in it.
func marker(path string) bool {
	return path == "governance.risk" || path == "retention" || path == "tls"
}

func (s *settings) attr(n *node, spec *attrSpec, v value, path string) {
	x := Setting{Path: path, Effect: effectOf(n.path, spec.name), At: lineOf(v.rng), ours: hash(plain(v.v)), Text: s.source(v.rng)}
	if expr := n.body.Attributes[spec.name]; expr != nil {
		x.Outside = callsOutside(expr.Expr)
		if spec.sensitive {
			x.Digest = ""
			if !callsSecret(expr.Expr) {
				x.Text = notShown
			}
		}
	}
	if !spec.sensitive {
		x.Digest = x.ours
	}
	if spec.def != "" {
		x.Default = hash(plain(newDecoder(s.eval).fallback(spec).v))
	}
	s.put(x)
}

// plugin takes the attributes of a plugin's config block. What the plugin has
// not said to be no secret is not shown.
func (s *settings) plugin(owner, n *node, path string) {
	inst, found := s.instance(owner)
	for _, a := range inOrder(n.body.Attributes) {
		x := Setting{Path: join(path, a.Name), Effect: effectOf(n.path, a.Name), At: lineOf(a.Expr.Range()), Outside: callsOutside(a.Expr), ref: inst.Ref()}
		val, diags := evalExpr(a.Expr, s.eval.context(true))
		val, _ = val.UnmarkDeep()
		if raw, err := ctyjson.Marshal(val, val.Type()); err == nil && !diags.HasErrors() {
			x.ours = hash(string(raw))
		}
		open := found && inst.state.isOpen(a.Name)
		switch {
		case callsSecret(a.Expr):
			x.Text = s.source(a.Expr.Range())
		case open:
			x.Text, x.Digest = s.source(a.Expr.Range()), x.ours
		default:
			x.Text = notShown
		}
		s.put(x)
	}
}

// instance is the plugin instance that a block belongs to.
func (s *settings) instance(owner *node) (Instance, bool) {
	if owner.spec.name == "plugin" { // of the policy
		for _, p := range s.cfg.Governance.PolicyPlugins {
			if len(owner.labels) == 1 && p.Driver == owner.labels[0] {
				return p.Instance, true
			}
		}
		return Instance{}, false
	}
	return s.cfg.Instance(join(append([]string{owner.spec.name}, owner.labels...)...))
}

// isOpen says that the plugin has declared the attribute, and not as sensitive.
func (s *instanceState) isOpen(name string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	secret, known := s.sensitive[name]
	return known && !secret
}

// source is the text of a range, on one line and not too long.
func (s *settings) source(r hcl.Range) string {
	file := s.eval.opts.Sources.files[r.Filename]
	if file == nil || !r.CanSliceBytes(file.Bytes) {
		return ""
	}
	text := strings.Join(strings.Fields(string(r.SliceBytes(file.Bytes))), " ")
	if runes := []rune(text); len(runes) > 200 {
		text = string(runes[:200]) + "…"
	}
	return text
}

// lineOf is a range as file:line.
func lineOf(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

func callsOutside(expr hclsyntax.Node) bool {
	found := false
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && (call.Name == "secret" || call.Name == "env") {
			found = true
		}
		return nil
	})
	return found
}

// plain is a decoded value as text that is equal for equal values.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case time.Duration:
		return v.String()
	case reference:
		return v.name
	case []reference:
		names := make([]string, len(v))
		for i, r := range v {
			names[i] = r.name
		}
		return strings.Join(names, ",")
	case *condition.Condition:
		return v.Text()
	case *glob.Pattern:
		return v.String()
	case pointer.Pointer:
		return v.String()
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%v", v)
	}
	return string(b)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// isDefault says that leaving it out would be the same.
func (x Setting) isDefault() bool {
	return x.Default != "" && (x.ours == x.Default || x.Digest == x.Default)
}

// SettingList is settings in the order of their paths.
func SettingList(m map[string]Setting) []Setting {
	out := make([]Setting, 0, len(m))
	for _, path := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[path])
	}
	return out
}
