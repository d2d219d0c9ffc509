# airlock serve --config examples/configs/several-files
# The files of a directory make one configuration, in the order of their names.

name     = env("AIRLOCK_NAME", "build-box-1")
data_dir = "/var/lib/airlock"

orchestrator {
  endpoint = env("AIWG_SERVE_ENDPOINT", "http://127.0.0.1:7337")
}

governance {
  mode       = "govern"
  on_failure = "fail_closed"

  policy {
    default = "allow"
  }
}

operator "local" {
  uids = [0, 1000]
}
