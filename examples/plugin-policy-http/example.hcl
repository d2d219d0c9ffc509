governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
    plugin "http" {
      timeout    = "5s"
      on_failure = "fail_closed"
      config {
        url = "http://127.0.0.1:9400/judge"
      }
    }
  }
}
