governance {
  mode       = govern
  on_failure = fail_closed
  policy {
    default = "allow"
  }
}
