isolation "docker" "container" {}
runtime "command" "shell" {}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}

listen {}
listen {}
isolation "docker" "container" {}
agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
}
agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
}
operator "o" {
  uids = [1]
}
operator "o" {
  uids = [2]
}
