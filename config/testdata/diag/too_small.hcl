operator "me" {
  uids = [0]
  role = "operator"
}
isolation "host-supervisor" "host" {}
runtime "command" "shell" {}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
}

uid_range = [200000, 200009]
agent "a" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 7
  warm      = 2
}
agent "b" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 2
  resources {
    memory = "1MiB"
  }
}
agent "c" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
  slots     = 1
  resources {
    memory = "16MiB"
  }
}
