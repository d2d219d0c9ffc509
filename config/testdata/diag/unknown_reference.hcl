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
  isolation = isolation.docker.contaner
  runtime   = "runtime.command.shell"
}
agent "b" {
  isolation = isolaton.docker.container
  runtime   = runtime.command
  revokers  = revoker.webhook.issuer
}
agent "c" {
  isolation = runtime.command.shell
  runtime   = runtime.claude-code.claude
  revokers  = [revoker.webhook.issuer]
}
