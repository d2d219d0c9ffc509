isolation "docker" "container" {
  config {
    image = file("/etc/passwd")
    limits {
    }
  }
  config {
  }
}
