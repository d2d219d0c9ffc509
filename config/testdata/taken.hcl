isolation "docker" "container" {}
runtime "command" "shell" {}

gateway "anthropic" {
  upstream = "https://api.anthropic.com"
}
revoker "webhook" "issuer" {}
agent "a" {
  isolation  = isolation.docker.container
  runtime    = runtime.command.shell
  gateways   = [gateway.anthropic]
  revokers   = [revoker.webhook.issuer]
  checkpoint = "on-suspend"
  network {
    mode  = "gateway"
    allow = ["registry.example:443"]
  }
}
governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "allow"
  }
  head {
    url = "https://heads.example"
  }
}
retention {
}
telemetry {
  otlp_endpoint = "http://127.0.0.1:4318"
}
orchestrator {
  approvals    = "answer"
  sandbox_hitl = true
}
