# Claude Code, governed, in a container without network and without a key. See
# docs/claude-code.md for how the CLI gets into each kind of cell.

isolation "docker" "container" {
  config {
    image = "debian:bookworm-slim"

    # The binary is the operator's; containers see it, read-only.
    mounts = { "/usr/local/bin/claude" = "/opt/claude/claude" }
  }
}

runtime "claude-code" "claude" {
  config {
    binary        = "/usr/local/bin/claude" # as the cell sees it
    host_binary   = "/opt/claude/claude"    # as this machine sees it
    version_range = ">= 2.1.300, < 2.2"
    model         = "sonnet"
  }
}

gateway "anthropic" {
  upstream    = "https://api.anthropic.com"
  allow_paths = ["/v1/messages*"]

  # The key stays here: no cell sees it. A file has mode 0600 and is the host's.
  header "x-api-key" {
    value = secret("env:ANTHROPIC_API_KEY") # better: secret("file:/etc/airlock/anthropic.key")
  }

  # USD per million tokens; status says when "*" was used.
  price "claude-sonnet-5-5" {
    input  = 3
    output = 15
  }
  price "*" {
    input  = 5
    output = 25
  }
}

agent "coder" {
  isolation = isolation.docker.container
  runtime   = runtime.claude-code.claude
  gateways  = [gateway.anthropic]
  slots     = 2
  warm      = 1

  resources {
    cpu    = 2
    memory = "2GiB"
    pids   = 512
  }

  workspace {
    source = "/srv/repo"
    mode   = "copy"
  }

  intent {
    goal = "fix the failing tests of the payment module"
  }

  governance {
    budget {
      max_cost_usd = 5
      max_tokens   = 5000000
      wall         = "2h"
      idle         = "20m"
    }
  }
}

governance {
  mode             = "govern"
  on_failure       = "fail_closed"
  approval_hold    = "10m" # then the CLI is ended, and goes on in the same session at the answer
  approval_timeout = "8h"

  policy {
    default = "allow"

    rule "no-force-push" {
      tool   = "Bash"
      when   = matches("push .*--force", args.command)
      effect = "deny"
      reason = "history is not rewritten by agents"
    }
  }

  approve {
    rule "pushes" {
      tool = "Bash"
      when = matches("git push", args.command)
    }
  }
}

operator "on-call" {
  uids = [1000]
}
