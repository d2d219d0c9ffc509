name = secret("env:AIRLOCK_TEST_SECRET")
run_dir = secret("file:/nowhere/secret")
data_dir = secret("relative")
orchestrator {
  actor = "x${secret("env:AIRLOCK_TEST_SECRET")}"
  name = { x = secret("env:AIRLOCK_TEST_SECRET") }[secret("env:AIRLOCK_TEST_SECRET")]
  endpoint = env(secret("env:AIRLOCK_TEST_SECRET"))
}
plugins {
  dir  = file("/etc/passwd")
  lock = env("A=B")
}
