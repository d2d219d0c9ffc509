# Airlock's configuration. Every attribute that is commented out has the value
# that is shown; docs/configuration.md explains all of them.
#
#   airlock validate PATH    checks it, plugins included
#   airlock fmt PATH         brings it into the usual layout
#
# The configuration may be one file, or a directory whose *.hcl files are read
# in the order of their names. env("NAME", "default") reads the environment;
# secret("file:/path") and secret("env:NAME") read a secret for a plugin.

# name     = "build-box-1"         # the hostname, if left out
data_dir = "/var/lib/airlock"
run_dir  = "/run/airlock"

# uid_range  = [200000, 265535]    # one uid for each cell
# orphan_ttl = "24h"

listen {
  rest      = "127.0.0.1:8122"
  ws        = "127.0.0.1:8121"
  advertise = "127.0.0.1" # where the orchestrator reaches this host
}

# Missions come from `aiwg serve`. Without an endpoint the host takes local
# missions only.
orchestrator {
  endpoint = env("AIWG_SERVE_ENDPOINT")
  name     = env("AIWG_SERVE_NAME", "agentic-sandbox")
}

plugins {
  dir  = "/usr/lib/airlock/plugins"
  lock = "/etc/airlock/plugins.lock.hcl" # `airlock plugin lock` writes it; enforced once it exists
}

# Where missions run. host-supervisor needs nothing else on the machine, and is
# the least isolated of the drivers.
isolation "host-supervisor" "host" {
  config {
    # Set by the systemd unit, so that cells survive a restart of the host.
    cgroup_parent = env("AIRLOCK_CELLS_CGROUP")

    # user = "airlock-agent" # of the workload, where uid_range gives it none
  }
}

# What runs there. For the command runtime the objective is the command.
runtime "command" "shell" {
  config {
    # shell   = ["/bin/sh", "-c"]
    # prompts = ["\\(y/n\\)\\s*$"] # last lines that are a question to a human
  }
}

# An agent puts the two together. The first one takes the missions that name
# none.
agent "agent-01" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell

  # slots = 4   # missions at once
  # queue = 100 # missions that wait for a slot
  # warm  = 0   # cells kept ready

  resources {
    # cpu  = 2
    # disk = "10GiB"
    memory = "2GiB"
    pids   = 512
  }

  network {
    mode = "none" # or "open"
  }
}

# What is let through. mode, on_failure and the policy's default have no default
# of their own.
governance {
  mode       = "govern"      # or "observe": record only
  on_failure = "fail_closed" # or "fail_open"

  policy {
    default = "allow" # or "deny"
  }

  # Signed heads of the journals. Best on another disk than data_dir.
  head {
    file     = "/var/lib/airlock-heads/heads.jsonl"
    key_file = "/etc/airlock/host.key" # made at the first start
  }
}

# Who may use the API and the operator socket. The name is the actor in every
# record.
operator "local-operator" {
  token_file = "/etc/airlock/operator.token" # at least 32 characters, mode 0600
  uids       = [0]                           # on the operator socket
}
