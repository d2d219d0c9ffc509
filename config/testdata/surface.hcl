name     = "build-box-1"                 # default: the hostname
data_dir = "/var/lib/airlock"            # identity, missions.db, missions.json mirror, sessions/, volumes/, agents/
run_dir  = "/run/airlock"
uid_range  = [200000, 265535]            # one uid per cell
orphan_ttl = "24h"                       # a labelled cell that the store does not know is frozen, reported, then destroyed

listen {
  rest      = "127.0.0.1:8122"
  ws        = "127.0.0.1:8121"
  advertise = "127.0.0.1"                # host name or address put into transport_endpoints
}

orchestrator {                           # without the block it is filled from AIWG_SERVE_ENDPOINT and AIWG_SERVE_NAME; no endpoint: off, configured=false
  endpoint     = env("AIWG_SERVE_ENDPOINT")
  name         = env("AIWG_SERVE_NAME", "agentic-sandbox")   # registered as "<orchestrator.name>-<name>", at most 128 characters
  approvals    = "show"                  # show: approvals are visible there, answered here | answer: answers count, as the actor below
  actor        = "orchestrator"
  sandbox      = true                    # the older sandbox registration beside it
  sandbox_hitl = false                   # accept its unauthenticated HITL answers
  missions_json = true                   # the mirror; legacy_dir = "…" imports an older sandbox's identity and missions.json once
}

plugins {
  dir  = "/usr/lib/airlock/plugins"      # executables airlock-isolation-NAME, airlock-runtime-NAME, airlock-revoker-NAME
  lock = "/etc/airlock/plugins.lock.hcl" # name -> sha256; present = enforced
}

isolation "docker" "container" {         # "<driver>" "<instance>": several instances of one driver are fine
  config {                               # validated by the plugin's own schema; diagnostics keep file:line:column
    image = "debian:bookworm-slim"
  }
}

isolation "qemu-kvm" "vm" {
  config {
    accel  = "auto"                      # auto | kvm | tcg
    image  = "/var/lib/airlock/images/debian"
    kernel = "/var/lib/airlock/images/vmlinux"
  }
}

isolation "host-supervisor" "host" {
  config {
    user = "airlock-agent"
  }
}

runtime "command" "shell" {
  config {
    shell   = ["/bin/sh", "-c"]
    prompts = ["\\(y/n\\)\\s*$"]          # a HITL question: the last rendered line matches and the process is blocked reading its terminal
  }
}

runtime "claude-code" "claude" {
  config {
    binary = "/usr/local/bin/claude"
    model  = "sonnet"
  }
}

revoker "webhook" "issuer" {
  config {
    url    = "http://127.0.0.1:9000/revoke"
    secret = secret("file:/etc/airlock/issuer.key")
  }
}

agent "agent-01" {                       # agent_id on the wire; the first agent in the config is the default
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
  gateways  = [gateway.anthropic]        # reachable by name from the cell, also with network.mode = "none"
  revokers  = [revoker.webhook.issuer]   # or revocation = "none", which waives issuers outside the host
  slots     = 4                          # missions at once; more wait in order, up to queue
  queue     = 100
  warm      = 1                          # cells kept ready
  resources {
    cpu    = 2
    memory = "2GiB"
    pids   = 512
    disk   = "10GiB"
  }
  network {
    mode  = "gateway"                    # none (default) | gateway (through the host, by allow list) | open (said out loud in status)
    allow = ["registry.example:443"]
  }
  workspace {
    source = "/srv/repo"
    mode   = "copy"                      # copy | read-only | read-write | empty (default)
  }
  intent {                               # used when a dispatch carries no metadata.intent
    goal        = "keep the build green"
    constraints = { max_refund = 500 }
  }
  governance {                           # may override restore, approval_timeout, approval_hold, max_resumes and budget
    restore     = "auto"                 # auto | latched
    max_resumes = 3
  }
  checkpoint = "on-suspend"              # off (default) | on-suspend, where the driver can
}

governance {
  mode             = "govern"            # required: govern | observe
  on_failure       = "fail_closed"       # required: fail_closed | fail_open
  approval_timeout = "15m"               # then REPLAN, whatever else; runs on across a defer and a restart
  approval_hold    = "10m"               # how long the process itself is kept waiting before the call is deferred
  policy {
    default = "allow"                    # required: allow | deny
    rule "no-force-push" {
      tool   = "Bash"                    # glob
      when   = matches("push .*--force", args.command)   # HCL expression; optional; an error in it goes to on_failure
      effect = "deny"                    # allow | deny | warn | challenge | replan | pause | escalate
      reason = "history is not rewritten by agents"
    }
    rule "dry-run-first" {
      tool    = "deploy"
      effect  = "warn"
      rewrite = { dry_run = true }       # merged into the arguments before the fingerprint is taken
    }
    plugin "judge" {}                    # a policy plugin: may only tighten
  }
  risk {
    block_at = "HIGH"
    rule "big-refund" {
      tool = "refund*"
      when = args.amount > 500
      risk = "HIGH"
    }
  }
  intent {
    binding "refund-cap" {
      tool       = "refund*"
      argument   = "/amount"
      op         = "lte"
      constraint = "max_refund"
      severity   = "BLOCK"
      on_missing = "block"
    }
  }
  budget {
    max_cost_usd = 5
    max_tokens   = 2000000
    wall         = "2h"                  # then the stop ladder, mission.failed reason timeout
    idle         = "20m"                 # no output, call or checkpoint: likewise
  }
  head {                                 # trusted heads of the journals, outside data_dir
    file     = "/var/lib/airlock-heads/heads.jsonl"
    key_file = "/etc/airlock/host.key"   # Ed25519, made at first start, mode 0400
    url      = ""                        # optional second sink
  }
  redact "secrets" {
    tool    = "*"
    pointer = "/password"
  }
  approve {                              # PAUSE for a human; the same as a policy rule with effect = "pause"
    rule "pushes" {
      tool = "Bash"
      when = matches("^git push", args.command)
    }
  }
}

gateway "anthropic" {
  upstream      = "https://api.anthropic.com"
  allow_paths   = ["/v1/messages*"]
  idle_timeout  = "2m"
  total_timeout = "20m"
  price "claude-sonnet-5-5" {            # USD per million tokens; price "*" is the default and status says when it was used
    input  = 3
    output = 15
  }
  header "x-api-key" {
    value = secret("file:/etc/airlock/anthropic.key")
  }
}

operator "local-operator" {
  token_file = "/etc/airlock/operator.token"   # at least 32 characters, mode 0600
  uids       = [1000]                    # who that is on the operator socket (SO_PEERCRED); root is mapped too if listed
  role       = "operator"                # operator | viewer
  agents     = ["agent-01"]              # what it may see; default all
}

tls {                                    # required as soon as a listener is not loopback
  cert_file      = "/etc/airlock/tls.crt"
  key_file       = "/etc/airlock/tls.key"
  client_ca_file = ""                    # set: mutual TLS
}

retention {
  journals = "90d"                       # finished missions older than this are archived as verified bundles, then removed
  archive  = "/var/lib/airlock/archive"
}

telemetry {
  prometheus    = true
  metrics_open  = false
  otlp_endpoint = ""
}
