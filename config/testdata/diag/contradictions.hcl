isolation "docker" "container" {}
runtime "command" "shell" {}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}

agent "a" {
  isolation  = isolation.docker.container
  runtime    = runtime.command.shell
  network {
    allow = []
  }
  workspace {
    source = "/srv"
  }
}
agent "b" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
  workspace {
    mode = "copy"
  }
  governance {
    approval_hold = "20m"
  }
  intent {
    goal        = "x"
    constraints = ["no"]
  }
}
