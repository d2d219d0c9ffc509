package config

import "time"

// rootSpec is the top level: everything about the host.
func rootSpec() *blockSpec {
	return &blockSpec{
		attrs: []attrSpec{
			{name: "name", typ: str("string", matching(agentForm, "a name: 1 to 128 letters, digits, dots, dashes and underscores")), computed: "the hostname",
				doc: `Name of this host. It registers as "ORCHESTRATOR-NAME", at most 128 characters together.`},
			{name: "data_dir", typ: path(), def: `"/var/lib/airlock"`, doc: "Identity, store, sessions and volumes. Survives a reboot."},
			{name: "run_dir", typ: path(atMost(90)), def: `"/run/airlock"`, doc: "Sockets. The operator socket is airlock.sock in it."},
			{name: "uid_range", typ: uint32s(2, 1000, 1<<32-2), def: "[200000, 265535]", doc: "First and last uid that cells may have; each cell has one of its own."},
			{name: "orphan_ttl", typ: duration(time.Second), def: `"24h"`, doc: "How long a cell that carries this host's label, but that the store does not know, or whose mission it cannot tell of, stays frozen before it is destroyed; counted from when it was seen first, over restarts of the host."},
		},
		blocks: []*blockSpec{
			listenSpec(), orchestratorSpec(), pluginsSpec(),
			instanceSpec(KindIsolation, "An instance of an isolation driver: where cells come from."),
			instanceSpec(KindRuntime, "An instance of a runtime plugin: what runs in a cell."),
			instanceSpec(KindRevoker, "An instance of a revoker plugin: who cuts access off at an issuer."),
			agentSpec(), governanceSpec(), gatewaySpec(), operatorSpec(), tlsSpec(), retentionSpec(), telemetrySpec(),
		},
	}
}

func path(checks ...func(string) error) *valueType {
	return str("absolute path", append([]func(string) error{absolutePath}, checks...)...)
}

func optionalPath() *valueType { return str("absolute path", orEmpty(absolutePath)) }

func listenSpec() *blockSpec {
	return &blockSpec{name: "listen", doc: "Where the host listens.", attrs: []attrSpec{
		{name: "rest", typ: str("host:port", hostPort), def: `"127.0.0.1:8122"`, doc: "Address of the REST listener. Anything but loopback needs a tls block."},
		{name: "ws", typ: str("host:port", hostPort), def: `"127.0.0.1:8121"`, doc: "Address of the WebSocket listener. Anything but loopback needs a tls block."},
		{name: "advertise", typ: str("host", hostName), def: `"127.0.0.1"`, doc: "Host name or address that the orchestrator is told to reach the host at."},
	}}
}

func orchestratorSpec() *blockSpec {
	return &blockSpec{name: "orchestrator", doc: "The link to `aiwg serve`. Without an endpoint it is off.", attrs: []attrSpec{
		{name: "endpoint", typ: str("URL", orEmpty(httpURL)), computed: "`AIWG_SERVE_ENDPOINT`", doc: "Base URL of the orchestrator. Empty: off."},
		{name: "name", typ: str("string", matching(agentForm, "a name: 1 to 128 letters, digits, dots, dashes and underscores")), computed: "`AIWG_SERVE_NAME`, else `agentic-sandbox`", doc: "First part of the name that this host registers with."},
		{name: "approvals", typ: enum("show", "answer"), def: `"show"`, doc: "`show`: approvals are visible at the orchestrator and answered here. `answer`: answers given there count, as the actor below."},
		{name: "actor", typ: str("string", notEmpty, atMost(128)), def: `"orchestrator"`, doc: "Name under which the orchestrator's answers are recorded."},
		{name: "sandbox", typ: boolean(), def: "true", doc: "Register as an older sandbox too, so that questions show up in the dashboard."},
		{name: "sandbox_hitl", typ: boolean(), def: "false", doc: "Accept the answers of that older registration, which carry no authentication."},
		{name: "missions_json", typ: boolean(), def: "true", doc: "Mirror the missions that are under way to missions.json in data_dir."},
		{name: "legacy_dir", typ: optionalPath(), def: `""`, doc: "Directory of an older sandbox whose identity and missions.json are imported once. Empty: none."},
	}}
}

func pluginsSpec() *blockSpec {
	return &blockSpec{name: "plugins", doc: "Where plugins are found.", attrs: []attrSpec{
		{name: "dir", typ: path(), def: `"/usr/lib/airlock/plugins"`, doc: "Directory of the executables airlock-isolation-NAME, airlock-runtime-NAME and airlock-revoker-NAME."},
		{name: "lock", typ: path(), def: `"/etc/airlock/plugins.lock.hcl"`, doc: "Lock file with the plugins' checksums. It is enforced when it exists."},
	}}
}

func instanceSpec(kind, doc string) *blockSpec {
	return &blockSpec{name: kind, labels: []labelSpec{driverLabel(), instanceLabel()}, repeat: true, doc: doc, blocks: []*blockSpec{
		{name: "config", plugin: true, doc: "The plugin's own attributes; `airlock plugin inspect` lists them."},
	}}
}

func operatorSpec() *blockSpec {
	return &blockSpec{name: "operator", labels: []labelSpec{agentLabel()}, repeat: true, doc: "Somebody who may use the API. The block's name is the actor in every record.", attrs: []attrSpec{
		{name: "token_file", typ: path(), doc: "File with the bearer token: at least 32 characters, mode 0600."},
		{name: "token_env", typ: str("string", matching(envName, "a name of an environment variable")), doc: "Environment variable with the bearer token, instead of a file."},
		{name: "uids", typ: uint32s(0, 0, 1<<32-2), doc: "Uids that are this operator on the operator socket. Root only if 0 is listed."},
		{name: "role", typ: enum("operator", "viewer"), def: `"operator"`, doc: "`viewer` may only read."},
		{name: "agents", typ: strs("agent names"), doc: "Agents that it may see. Empty: all."},
	}}
}

func tlsSpec() *blockSpec {
	return &blockSpec{name: "tls", doc: "Certificate of the listeners; required as soon as one is not loopback.", attrs: []attrSpec{
		{name: "cert_file", typ: path(), required: true, doc: "Certificate chain, PEM."},
		{name: "key_file", typ: path(), required: true, doc: "Private key, PEM."},
		{name: "client_ca_file", typ: optionalPath(), def: `""`, doc: "Set: clients need a certificate of this CA."},
	}}
}

func retentionSpec() *blockSpec {
	return &blockSpec{name: "retention", doc: "How long finished missions are kept. Without the block they are kept for ever.", attrs: []attrSpec{
		{name: "journals", typ: duration(time.Second), def: `"90d"`, doc: "Finished missions older than this are archived as verified bundles, then removed with their output and files."},
		{name: "archive", typ: path(), def: `"/var/lib/airlock/archive"`, doc: "Where the archived bundles go."},
		{name: "max_size", typ: size(), doc: "When the store holds more than this, missions that ended first are archived before their time. Left out: no limit."},
		{name: "states", typ: strs("states"), def: `["done", "failed", "aborted"]`, doc: "Ends of missions that are archived and removed; the others are kept for ever."},
	}}
}

func telemetrySpec() *blockSpec {
	return &blockSpec{name: "telemetry", doc: "What is measured, and who may read it.", attrs: []attrSpec{
		{name: "prometheus", typ: boolean(), def: "true", doc: "Serve /metrics."},
		{name: "metrics_open", typ: boolean(), def: "false", doc: "/metrics needs no credential."},
		{name: "otlp_endpoint", typ: str("URL", orEmpty(httpURL)), def: `""`, doc: "OTLP receiver that traces of missions are sent to over HTTP, such as http://127.0.0.1:4318; /v1/traces is added where it has no path. Empty: nowhere."},
	}}
}
