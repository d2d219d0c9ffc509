operator "none" {
}
operator "both" {
  token_file = "/t"
  token_env  = "T"
}
operator "missing" {
  token_file = "/missing"
}
operator "short" {
  token_file = "/short"
}
operator "bad" {
  token_env = "AIRLOCK_TEST_BAD_TOKEN"
}
operator "one" {
  token_file = "/good"
  uids       = [1000]
  agents     = ["agent-1"]
  role       = "admin"
}
operator "two" {
  token_file = "/good"
  uids       = [1000]
}
operator "three" {
  token_file = "/good"
}
