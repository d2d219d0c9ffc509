uid_range = [300000, 200000]
data_dir  = "var/lib"
run_dir   = "/run/../tmp"
listen {
  rest      = "0.0.0.0:8122"
  ws        = "[::1]:70000"
  advertise = "host name"
}
orchestrator {
  endpoint = "ftp://x"
  name     = "a b"
  sandbox  = "yes"
}
