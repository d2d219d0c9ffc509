isolation "docker" "container" {}
runtime "command" "shell" {}

agent "a" {
  isolation = isolation.docker.container
  runtime   = runtime.command.shell
}
