isolation "host-supervisor" "host" {}

runtime "command" "shell" {}

runtime "command" "python" {
  config {
    shell = ["/usr/bin/python3", "-c"]
  }
}
