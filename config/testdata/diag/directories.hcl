data_dir = "/"
run_dir  = "/tmp"
isolation "docker" "container" {}
runtime "command" "shell" {}
plugins {
  dir = "/tmp/plugins"
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
  head {
    file = "/tmp/heads/heads.jsonl"
  }
}
agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
}
