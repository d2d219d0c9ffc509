# A shell whose commands may ask a human. When the last line on the terminal
# matches a prompt, and the process really is blocked reading it, the question
# is shown at the orchestrator and by `airlock hitl list`.

isolation "host-supervisor" "host" {}

runtime "command" "asking" {
  config {
    shell   = ["/bin/bash", "-c"]
    prompts = ["\\(y/n\\)\\s*$", "^Password:\\s*$"]
  }
}

agent "deployer" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.asking
  slots     = 1

  workspace {
    source = "/srv/repo"
    mode   = "copy"
  }

  governance {
    restore = "latched" # after a restart an operator looks first

    budget {
      wall = "2h"
      idle = "20m"
    }
  }
}

governance {
  mode       = "govern"
  on_failure = "fail_closed"

  policy {
    default = "allow"
  }
}

operator "on-call" {
  uids = [1000]
}

operator "dashboard" {
  token_env = "AIRLOCK_DASHBOARD_TOKEN"
  role      = "viewer"
  agents    = ["deployer"]
}
