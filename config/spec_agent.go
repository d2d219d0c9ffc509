package config

import "time"

// agentSpec is the agent block.
func agentSpec() *blockSpec {
	return &blockSpec{name: "agent", labels: []labelSpec{agentLabel()}, repeat: true,
		doc: "A named set of slots for missions; the name is the agent_id on the wire. The first agent of the configuration is the default.",
		attrs: []attrSpec{
			{name: "isolation", typ: ref(KindIsolation), required: true, doc: "The isolation instance that makes its cells."},
			{name: "runtime", typ: ref(KindRuntime), required: true, doc: "The runtime instance that runs in them."},
			{name: "gateways", typ: refs("gateway"), doc: "Gateways that a cell reaches by name, whatever its network."},
			{name: "revokers", typ: refs(KindRevoker), doc: "Revokers that a stop calls."},
			{name: "revocation", typ: enum("none"), doc: "`none` waives issuers outside of the host, instead of revokers."},
			{name: "slots", typ: integer(1, 10000), def: "4", doc: "Missions at once."},
			{name: "queue", typ: integer(0, 1000000), def: "100", doc: "Missions that may wait for a slot; more are refused."},
			{name: "warm", typ: integer(0, 1000), def: "0", doc: "Cells kept ready."},
			{name: "checkpoint", typ: enum("off", "on-suspend"), def: `"off"`, doc: "`on-suspend`: a planned stop of the host checkpoints the cell, where the driver can."},
		},
		blocks: []*blockSpec{resourcesSpec(), networkSpec(), workspaceSpec(), intentSpec(), agentGovernanceSpec()}}
}

func resourcesSpec() *blockSpec {
	return &blockSpec{name: "resources", doc: "Limits of a cell. What the driver cannot enforce, status says.", attrs: []attrSpec{
		{name: "cpu", typ: number(0, 4096), doc: "CPUs, fractions allowed. Left out: no limit."},
		{name: "memory", typ: size(), doc: "Memory. Left out: no limit."},
		{name: "pids", typ: integer(1, 4194304), doc: "Processes and threads. Left out: no limit."},
		{name: "disk", typ: size(), doc: "Disk. Left out: no limit."},
	}}
}

func networkSpec() *blockSpec {
	return &blockSpec{name: "network", doc: "What a cell reaches.", attrs: []attrSpec{
		{name: "mode", typ: enum("none", "gateway", "open"), def: `"none"`, doc: "`none`: nothing. `gateway`: what allow lists, through the host. `open`: whatever the host reaches; status says so."},
		{name: "allow", typ: strs("host:port", allowEntry), doc: "What mode `gateway` lets through: `HOST:PORT`, where HOST may be `*.DOMAIN`, an address or a range of addresses, and PORT `*`. What is not public has to be listed by address."},
	}}
}

func workspaceSpec() *blockSpec {
	return &blockSpec{name: "workspace", doc: "The files that a mission works on.", attrs: []attrSpec{
		{name: "source", typ: path(), doc: "Directory on the host. Every mode but `empty` needs it."},
		{name: "mode", typ: enum("copy", "read-only", "read-write", "empty"), def: `"empty"`, doc: "`copy`: each mission has its own copy. `read-only`, `read-write`: the directory itself. `empty`: a new directory."},
	}}
}

func intentSpec() *blockSpec {
	return &blockSpec{name: "intent", doc: "The intent of a mission whose dispatch carries none.", attrs: []attrSpec{
		{name: "goal", typ: str("string", notEmpty, atMost(10000)), required: true, doc: "What the mission is for."},
		{name: "constraints", typ: object(), doc: "Named values that the goal is bound to."},
	}}
}

// agentGovernanceSpec holds what an agent may override; left out: the host's.
func agentGovernanceSpec() *blockSpec {
	return &blockSpec{name: "governance", doc: "What differs from the host's governance block.", attrs: []attrSpec{
		{name: "restore", typ: enum("auto", "latched"), computed: "the host's", doc: "As in the host's block."},
		{name: "max_resumes", typ: integer(0, 1000), computed: "the host's", doc: "As in the host's block."},
		{name: "approval_timeout", typ: duration(100 * time.Millisecond), computed: "the host's", doc: "As in the host's block."},
		{name: "approval_hold", typ: duration(100 * time.Millisecond), computed: "the host's, or approval_timeout where that is shorter", doc: "As in the host's block."},
	}, blocks: []*blockSpec{budgetSpec()}}
}

func budgetSpec() *blockSpec {
	return &blockSpec{name: "budget", doc: "Limits of a mission. Left out: no limit.", attrs: []attrSpec{
		{name: "max_cost_usd", typ: usd(), doc: "USD for model calls."},
		{name: "max_tokens", typ: integer(1, 1<<53), doc: "Tokens of model calls."},
		{name: "wall", typ: duration(time.Second), doc: "Time from the start; then the stop ladder and mission.failed with reason timeout."},
		{name: "idle", typ: duration(time.Second), doc: "Time without output, call or checkpoint; then likewise, with reason idle."},
	}}
}
