orphan_ttl = "1ns"
isolation "docker" "container" {}
runtime "command" "shell" {}
gateway "api" {
  upstream      = "https://api.example"
  idle_timeout  = "1us"
  total_timeout = "99ms"
}
retention {
  journals = "1ms"
}
governance {
  mode             = "govern"
  on_failure       = "fail_closed"
  approval_timeout = "5ns"
  policy {
    default = "allow"
    plugin "judge" {
      timeout = "1ms"
    }
  }
  budget {
    wall = "1us"
    idle = "999ms"
  }
}
agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
  governance {
    approval_hold = "1ms"
  }
}
