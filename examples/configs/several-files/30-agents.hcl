# The first agent takes the missions that name none.
agent "shell" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.shell
}

agent "python" {
  isolation = isolation.host-supervisor.host
  runtime   = runtime.command.python
  slots     = 2
  queue     = 10

  resources {
    cpu    = 1.5
    memory = "512MiB"
    pids   = 64
  }
}
