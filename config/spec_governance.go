package config

import (
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/config/glob"
	"github.com/airlock-host/airlock/config/pointer"
)

// governanceSpec is the host-wide governance block. What weakens the gate has no
// default (governance 0, item 7).
func governanceSpec() *blockSpec {
	return &blockSpec{name: "governance", doc: "How missions are governed. Required as soon as there is an agent.",
		attrs: []attrSpec{
			{name: "mode", typ: enum("govern", "observe"), required: true, doc: "`govern` enforces decisions, `observe` only records them. It has no default, because it decides what is let through."},
			{name: "on_failure", typ: enum("fail_closed", "fail_open"), required: true, doc: "What happens to a call that cannot be decided or recorded. It has no default, because it decides what is let through."},
			{name: "approval_timeout", typ: duration(100 * time.Millisecond), def: `"15m"`, doc: "How long an approval may wait before the call is to be planned anew. It runs on across a restart."},
			{name: "approval_hold", typ: duration(100 * time.Millisecond), computed: "`10m`, or approval_timeout where that is shorter", doc: "How long the process itself is kept waiting before the call is deferred. Written out, it may not be longer than approval_timeout."},
			{name: "restore", typ: enum("auto", "latched"), def: `"auto"`, doc: "After a restart: `auto` resumes what is verified alive, `latched` waits for an operator."},
			{name: "max_resumes", typ: integer(0, 1000), def: "3", doc: "Resumes without progress before a mission fails. Planned restarts do not count."},
		},
		blocks: []*blockSpec{policySpec(), riskSpec(), bindingsSpec(), budgetSpec(), headSpec(), redactSpec(), approveSpec()}}
}

func policySpec() *blockSpec {
	return &blockSpec{name: "policy", required: true, doc: `Write policy { default = "allow" } or policy { default = "deny" }.`,
		attrs: []attrSpec{
			{name: "default", typ: enum("allow", "deny"), required: true, doc: "Effect on a call that no rule matches. It has no default, because it decides what is let through."},
		},
		blocks: []*blockSpec{
			{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "A policy rule. All rules are looked at, all that match are recorded, and the most severe effect counts.", attrs: []attrSpec{
				{name: "tool", typ: toolGlob(), required: true, doc: "Tools that it is for: * is any text, / included, ? one character, [a-z] one of these, [!a-z] one of the others. Upper and lower case differ."},
				{name: "when", typ: callCondition(), doc: "Condition over the call. Left out: always."},
				{name: "effect", typ: enum("allow", "deny", "warn", "challenge", "replan", "pause", "escalate"), required: true, doc: "What it does."},
				{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the agent and the operator."},
				{name: "rewrite", typ: object(), doc: "Merged into the arguments: object by object, later rules win. What runs and what is approved is the result; the rules look at it too."},
			}},
			policyPluginSpec(),
		}}
}

func policyPluginSpec() *blockSpec {
	return &blockSpec{name: "plugin", labels: []labelSpec{driverLabel()}, repeat: true,
		doc: "A policy plugin, executable airlock-policy-NAME. It is asked after every other stage, and may only tighten.",
		attrs: []attrSpec{
			{name: "timeout", typ: duration(10 * time.Millisecond), def: `"5s"`, doc: "How long it may think; then the call goes to on_failure."},
			{name: "on_failure", typ: enum("fail_closed", "fail_open"), computed: "the host's", doc: "What happens to a call that it fails on."},
		},
		blocks: []*blockSpec{{name: "config", plugin: true, doc: "The plugin's own attributes; `airlock plugin inspect` lists them."}}}
}

func riskSpec() *blockSpec {
	return &blockSpec{name: "risk", doc: "Risk of calls.", attrs: []attrSpec{
		{name: "block_at", typ: riskLevel(), def: `"HIGH"`, doc: "Calls of this risk and above are blocked. A call that no rule matches is LOW."},
	}, blocks: []*blockSpec{
		{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "A risk rule; the first that matches rates the call.", attrs: []attrSpec{
			{name: "tool", typ: toolGlob(), required: true, doc: "Tools that it is for."},
			{name: "when", typ: callCondition(), doc: "Condition over the call. Left out: always."},
			{name: "risk", typ: riskLevel(), required: true, doc: "The risk of such a call."},
			{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the operator."},
		}},
	}}
}

func riskLevel() *valueType { return enum("LOW", "MEDIUM", "HIGH") }

func bindingsSpec() *blockSpec {
	return &blockSpec{name: "intent", doc: "Bindings of arguments to the constraints of a mission's intent.", blocks: []*blockSpec{
		{name: "binding", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "Holds an argument against a constraint.", attrs: []attrSpec{
			{name: "tool", typ: toolGlob(), required: true, doc: "Tools that it is for."},
			{name: "argument", typ: jsonPointer(), required: true, doc: "The argument."},
			{name: "op", typ: enum("eq", "ne", "gt", "gte", "lt", "lte", "in", "contains"), def: `"lte"`, doc: "How it must compare to the constraint."},
			{name: "constraint", typ: str("string", notEmpty), required: true, doc: "Name of the constraint."},
			{name: "severity", typ: enum("BLOCK", "ESCALATE", "PAUSE", "REPLAN", "CHALLENGE", "WARN"), def: `"BLOCK"`, doc: "The outcome when it does not hold."},
			{name: "on_missing", typ: enum("allow", "warn", "block"), def: `"block"`, doc: "What happens when the argument or the constraint is missing."},
			{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the agent and the operator."},
		}},
	}}
}

func headSpec() *blockSpec {
	return &blockSpec{name: "head", doc: "Trusted heads of the journals, outside of data_dir.", attrs: []attrSpec{
		{name: "file", typ: path(), def: `"/var/lib/airlock-heads/heads.jsonl"`, doc: "File of signed heads."},
		{name: "key_file", typ: path(), def: `"/etc/airlock/host.key"`, doc: "Ed25519 key, made at the first start with mode 0400."},
		{name: "url", typ: str("URL", orEmpty(httpURL)), def: `""`, doc: "A second place: each signed head is posted there as JSON, and again until it is taken. Empty: none."},
	}}
}

func redactSpec() *blockSpec {
	return &blockSpec{name: "redact", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "Keeps an argument out of the journal.", attrs: []attrSpec{
		{name: "tool", typ: toolGlob(), required: true, doc: "Tools that it is for."},
		{name: "pointer", typ: jsonPointer(), required: true, doc: "The argument."},
	}}
}

func approveSpec() *blockSpec {
	return &blockSpec{name: "approve", doc: "Calls that wait for a human.", blocks: []*blockSpec{
		{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "The same as a policy rule with effect pause.", attrs: []attrSpec{
			{name: "tool", typ: toolGlob(), required: true, doc: "Tools that it is for."},
			{name: "when", typ: callCondition(), doc: "Condition over the call. Left out: always."},
			{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the operator."},
		}},
	}}
}

// toolGlob is a compiled pattern of tools' names.
func toolGlob() *valueType {
	return &valueType{name: "glob", want: cty.String, parse: func(v cty.Value) (any, error) {
		p, err := glob.Compile(v.AsString())
		if err != nil {
			return nil, fmt.Errorf("%s is not a glob: %w", quote(v.AsString()), err)
		}
		return p, nil
	}}
}

// callCondition is an expression over a call, compiled at load and evaluated by the gate.
func callCondition() *valueType {
	return &valueType{name: "condition", expr: func(e hclsyntax.Expression) (any, hcl.Diagnostics) {
		c, diags := condition.Compile(e)
		return c, diags
	}}
}

func jsonPointer() *valueType {
	return &valueType{name: "JSON pointer", want: cty.String, parse: func(v cty.Value) (any, error) {
		p, err := pointer.Parse(v.AsString())
		if err != nil {
			return nil, fmt.Errorf("%s %w", quote(v.AsString()), err)
		}
		return p, nil
	}}
}
