isolation "docker" "container" {}
runtime "command" "shell" {}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}

orphan_ttl = "-3h"
agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
  slots     = 0
  queue     = 1.5
  warm      = 7
  resources {
    cpu    = -1
    memory = 2048
    disk   = "10 gigs"
    pids   = "many"
  }
  governance {
    approval_timeout = "15"
    approval_hold    = "5 minutes"
    budget {
      wall = "0s"
      idle = "99999999d"
    }
  }
}
agent "b" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
  resources {
    memory = "99999999999999999999TiB"
    disk   = "0.3B"
  }
}
