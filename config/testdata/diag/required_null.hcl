governance {
  mode       = env("AIRLOCK_TEST_UNSET")
  on_failure = "fail_shut"
  policy {
  }
}
