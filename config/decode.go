package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// node is one decoded block.
type node struct {
	spec   *blockSpec
	path   string // names from the top, joined by dots: "agent.network"
	labels []string
	rng    hcl.Range // of the header; of the file's start for the top level
	attrs  map[string]value
	blocks []*node
	body   *hclsyntax.Body
	// diags are the block's own and its children's, kept apart for every node so
	// that one bad agent block can be quarantined.
	diags hcl.Diagnostics
}

// value is one decoded attribute.
type value struct {
	v   any
	set bool      // written in the configuration, and not null
	rng hcl.Range // of the expression
}

// get is an attribute's value: of its default when it is not set, and T's zero
// value when it has none.
func get[T any](n *node, name string) T {
	var zero T
	v, ok := n.attrs[name]
	if !ok || v.v == nil {
		return zero
	}
	return v.v.(T)
}

func (n *node) isSet(name string) bool { return n.attrs[name].set }

// readable says that an attribute has a value, its default where it is not set;
// false: what is written is an error already.
func (n *node) readable(name string) bool { _, ok := n.attrs[name]; return ok }

// at is where an attribute is, or the block's header when it is not set.
func (n *node) at(name string) hcl.Range {
	if v := n.attrs[name]; v.set {
		return v.rng
	}
	return n.rng
}

// one is the only block of that name, or nil.
func (n *node) one(name string) *node {
	for _, b := range n.blocks {
		if b.spec.name == name {
			return b
		}
	}
	return nil
}

func (n *node) all(name string) []*node {
	var out []*node
	for _, b := range n.blocks {
		if b.spec.name == name {
			out = append(out, b)
		}
	}
	return out
}

// title names a block in messages: agent "agent-01".
func (n *node) title() string {
	s := n.spec.name
	for _, l := range n.labels {
		s += " " + strconv.Quote(l)
	}
	return s
}

type decoder struct {
	eval *evaluator
	ctx  *hcl.EvalContext
}

func newDecoder(eval *evaluator) *decoder { return &decoder{eval: eval, ctx: eval.context(false)} }

func (d *decoder) root(body *hclsyntax.Body) *node {
	// A place for what is missing: the first character, not the whole file.
	at := body.SrcRange
	at.End = at.Start
	return d.decode(rootSpec(), "", nil, at, body)
}

// decode turns a body into a node; what is wrong is in the node's diags.
func (d *decoder) decode(spec *blockSpec, path string, labels []string, rng hcl.Range, body *hclsyntax.Body) *node {
	n := &node{spec: spec, path: path, labels: labels, rng: rng, attrs: map[string]value{}, body: body}
	if spec.plugin {
		return n
	}
	for _, attr := range inOrder(body.Attributes) {
		if spec.attr(attr.Name) == nil {
			n.diags = append(n.diags, d.unknownAttribute(n, attr))
		}
	}
	for i := range spec.attrs {
		d.attribute(n, &spec.attrs[i], body.Attributes[spec.attrs[i].name])
	}
	first := map[string]hcl.Range{}
	for _, block := range body.Blocks {
		child := spec.block(block.Type)
		if child == nil {
			n.diags = append(n.diags, d.unknownBlock(n, block))
			continue
		}
		if at, dup := first[block.Type]; dup && !child.repeat {
			n.diags = append(n.diags, errorAt(block.DefRange(), "Block given twice",
				"There was a %s block at %s already. Only one is allowed: put everything into it.", block.Type, place(at)))
			continue
		}
		first[block.Type] = block.DefRange()
		if c := d.block(n, child, block); c != nil {
			n.blocks = append(n.blocks, c)
		}
	}
	for _, child := range spec.blocks {
		if _, ok := first[child.name]; child.required && !ok {
			n.diags = append(n.diags, errorAt(rng, "Missing block", "%s needs a %s block. %s", n.where(), child.name, child.doc))
		}
	}
	return n
}

// block decodes one child block; nil when its labels are wrong.
func (d *decoder) block(parent *node, spec *blockSpec, block *hclsyntax.Block) *node {
	if len(block.Labels) != len(spec.labels) {
		parent.diags = append(parent.diags, labelCount(spec, block))
		return nil
	}
	path := spec.name
	if parent.path != "" {
		path = parent.path + "." + spec.name
	}
	n := d.decode(spec, path, block.Labels, block.DefRange(), block.Body)
	for i, l := range spec.labels {
		if l.form != nil && !l.form.MatchString(block.Labels[i]) {
			n.diags = append(n.diags, errorAt(block.LabelRanges[i], "Bad "+l.what, "%s cannot be the %s of this block: use %s.", quote(block.Labels[i]), l.what, l.say))
		}
	}
	return n
}

// attribute decodes one attribute, or fills its default in.
func (d *decoder) attribute(n *node, spec *attrSpec, attr *hclsyntax.Attribute) {
	if attr == nil {
		if spec.required {
			n.diags = append(n.diags, missing(n, spec, n.rng, ""))
			return
		}
		n.attrs[spec.name] = d.fallback(spec)
		return
	}
	v, isNull, diags := d.evaluate(spec, attr.Expr)
	n.diags = append(n.diags, diags...)
	if diags.HasErrors() {
		return
	}
	if isNull {
		if spec.required {
			n.diags = append(n.diags, missing(n, spec, attr.Expr.Range(), " It is set to null here; an env() whose variable is not set and that has no default is null."))
			return
		}
		n.attrs[spec.name] = d.fallback(spec)
		return
	}
	n.attrs[spec.name] = value{v: v, set: true, rng: attr.Expr.Range()}
}

// fallback is an attribute's default. Defaults are constants of the specs; a bad
// one is a bug that the tests of the specs find.
func (d *decoder) fallback(spec *attrSpec) value {
	if spec.def == "" {
		return value{}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(spec.def), "default of "+spec.name, hcl.InitialPos)
	if !diags.HasErrors() {
		var v any
		if v, _, diags = d.evaluate(spec, expr); !diags.HasErrors() {
			return value{v: v}
		}
	}
	panic(fmt.Sprintf("config: default of %s: %s", spec.name, diags.Error()))
}

func missing(n *node, spec *attrSpec, at hcl.Range, why string) *hcl.Diagnostic {
	say := spec.doc
	if strings.Contains(spec.typ.name, " or ") {
		say += " Write " + spec.name + " = " + strings.Replace(spec.typ.name, " or ", " or "+spec.name+" = ", 1) + "."
	}
	return errorAt(at, "Missing attribute", "%s needs the attribute %q.%s %s", n.where(), spec.name, why, say)
}

func (n *node) where() string {
	if n.path == "" {
		return "The configuration"
	}
	return "The block " + n.title()
}

func (d *decoder) unknownAttribute(n *node, attr *hclsyntax.Attribute) *hcl.Diagnostic {
	hint := didYouMean(attr.Name, attrNames(n.spec))
	switch {
	case n.spec.block(attr.Name) != nil:
		hint = fmt.Sprintf(". It is a block: write %s { … } without an equals sign.", attr.Name)
	case hint == "" && n.spec.block("config") != nil:
		hint = ". The plugin's own attributes go into its config block."
	}
	return errorAt(attr.NameRange, "Unknown attribute", "%s", sentence(fmt.Sprintf("%s has no attribute %s%s", n.where(), quote(attr.Name), hint)))
}

func (d *decoder) unknownBlock(n *node, block *hclsyntax.Block) *hcl.Diagnostic {
	var names []string
	for _, b := range n.spec.blocks {
		names = append(names, b.name)
	}
	hint := didYouMean(block.Type, names)
	if n.spec.attr(block.Type) != nil {
		hint = fmt.Sprintf(". It is an attribute: write %s = … with an equals sign.", block.Type)
	}
	return errorAt(block.TypeRange, "Unknown block", "%s", sentence(fmt.Sprintf("%s has no block %s%s", n.where(), quote(block.Type), hint)))
}

func labelCount(spec *blockSpec, block *hclsyntax.Block) *hcl.Diagnostic {
	want := spec.name
	for _, l := range spec.labels {
		want += fmt.Sprintf(" %q", strings.ToUpper(l.what))
	}
	return errorAt(block.DefRange(), "Wrong labels", "This block has %d labels, and takes %d: write %s { … }.", len(block.Labels), len(spec.labels), want)
}

func attrNames(spec *blockSpec) []string {
	var names []string
	for _, a := range spec.attrs {
		names = append(names, a.name)
	}
	return names
}

// inOrder is a body's attributes as they stand in the file.
func inOrder(attrs hclsyntax.Attributes) []*hclsyntax.Attribute {
	out := make([]*hclsyntax.Attribute, 0, len(attrs))
	for _, name := range sortedKeys(attrs) {
		out = append(out, attrs[name])
	}
	slices.SortStableFunc(out, func(a, b *hclsyntax.Attribute) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte })
	return out
}

// sentence ends a text with a full stop, unless it has an end already.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}
