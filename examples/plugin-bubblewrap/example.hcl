isolation "bubblewrap" "sandbox" {
  config {
    read_only = ["/etc", "/opt"]
  }
}
