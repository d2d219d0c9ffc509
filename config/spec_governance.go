package config

import (
	"errors"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// governanceSpec is the host-wide governance block. What weakens the gate has no
// default (governance 0, item 7).
func governanceSpec() *blockSpec {
	return &blockSpec{name: "governance", doc: "How missions are governed. Required as soon as there is an agent.",
		attrs: []attrSpec{
			{name: "mode", typ: enum("govern", "observe"), required: true, doc: "`govern` enforces decisions, `observe` only records them. It has no default, because it decides what is let through."},
			{name: "on_failure", typ: enum("fail_closed", "fail_open"), required: true, doc: "What happens to a call that cannot be decided or recorded. It has no default, because it decides what is let through."},
			{name: "approval_timeout", typ: duration(), def: `"15m"`, doc: "How long an approval may wait before the call is to be planned anew. It runs on across a restart."},
			{name: "approval_hold", typ: duration(), def: `"10m"`, doc: "How long the process itself is kept waiting before the call is deferred."},
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
			{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "A policy rule.", attrs: []attrSpec{
				{name: "tool", typ: str("glob", notEmpty), required: true, doc: "Tools that it is for, with * as a wildcard."},
				{name: "when", typ: condition(), doc: "Condition over the call. Left out: always."},
				{name: "effect", typ: enum("allow", "deny", "warn", "challenge", "replan", "pause", "escalate"), required: true, doc: "What it does."},
				{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the agent and the operator."},
				{name: "rewrite", typ: object(), doc: "Merged into the arguments before the fingerprint is taken."},
			}},
			{name: "plugin", labels: []labelSpec{instanceLabel()}, repeat: true, plugin: true, doc: "A policy plugin; it may only tighten."},
		}}
}

func riskSpec() *blockSpec {
	return &blockSpec{name: "risk", doc: "Risk of calls.", attrs: []attrSpec{
		{name: "block_at", typ: riskLevel(), required: true, doc: "Calls of this risk and above are blocked."},
	}, blocks: []*blockSpec{
		{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "A risk rule.", attrs: []attrSpec{
			{name: "tool", typ: str("glob", notEmpty), required: true, doc: "Tools that it is for."},
			{name: "when", typ: condition(), doc: "Condition over the call. Left out: always."},
			{name: "risk", typ: riskLevel(), required: true, doc: "The risk of such a call."},
			{name: "reason", typ: str("string", atMost(1000)), doc: "Why, for the operator."},
		}},
	}}
}

func riskLevel() *valueType { return enum("LOW", "MEDIUM", "HIGH") }

func bindingsSpec() *blockSpec {
	return &blockSpec{name: "intent", doc: "Bindings of arguments to the constraints of a mission's intent.", blocks: []*blockSpec{
		{name: "binding", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "Holds an argument against a constraint.", attrs: []attrSpec{
			{name: "tool", typ: str("glob", notEmpty), required: true, doc: "Tools that it is for."},
			{name: "argument", typ: str("JSON pointer", jsonPointer), required: true, doc: "The argument."},
			{name: "op", typ: enum("eq", "ne", "gt", "gte", "lt", "lte", "in", "contains"), required: true, doc: "How it compares to the constraint."},
			{name: "constraint", typ: str("string", notEmpty), required: true, doc: "Name of the constraint."},
			{name: "severity", typ: enum("BLOCK", "ESCALATE", "PAUSE", "REPLAN", "CHALLENGE", "WARN"), required: true, doc: "The outcome when it does not hold."},
			{name: "on_missing", typ: enum("allow", "warn", "block"), def: `"block"`, doc: "What happens when the argument or the constraint is missing."},
		}},
	}}
}

func headSpec() *blockSpec {
	return &blockSpec{name: "head", doc: "Trusted heads of the journals, outside of data_dir.", attrs: []attrSpec{
		{name: "file", typ: path(), def: `"/var/lib/airlock-heads/heads.jsonl"`, doc: "File of signed heads."},
		{name: "key_file", typ: path(), def: `"/etc/airlock/host.key"`, doc: "Ed25519 key, made at the first start with mode 0400."},
		{name: "url", typ: str("URL", orEmpty(httpURL)), def: `""`, doc: "A second place for heads. Empty: none."},
	}}
}

func redactSpec() *blockSpec {
	return &blockSpec{name: "redact", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "Keeps an argument out of the journal.", attrs: []attrSpec{
		{name: "tool", typ: str("glob", notEmpty), required: true, doc: "Tools that it is for."},
		{name: "pointer", typ: str("JSON pointer", jsonPointer), required: true, doc: "The argument."},
	}}
}

func approveSpec() *blockSpec {
	return &blockSpec{name: "approve", doc: "Calls that wait for a human.", blocks: []*blockSpec{
		{name: "rule", labels: []labelSpec{instanceLabel()}, repeat: true, doc: "The same as a policy rule with effect pause.", attrs: []attrSpec{
			{name: "tool", typ: str("glob", notEmpty), required: true, doc: "Tools that it is for."},
			{name: "when", typ: condition(), doc: "Condition over the call. Left out: always."},
		}},
	}}
}

// condition is an expression over a call. It is not evaluated at load.
func condition() *valueType {
	return &valueType{name: "condition", expr: func(e hclsyntax.Expression) (any, hcl.Diagnostics) { return e, nil }}
}

func jsonPointer(s string) error {
	if !strings.HasPrefix(s, "/") {
		return errors.New(`is not a JSON pointer: it starts with /, for example "/amount"`)
	}
	return nil
}
