governance {
  approval_timeout = "15m"
}
