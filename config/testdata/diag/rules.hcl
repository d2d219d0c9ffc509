governance {
  mode       = "govern"
  on_failure = "fail_closed"
  policy {
    default = "deny"
    rule "effect" {
      tool   = "Bash"
      effect = "block"
    }
    rule "pattern" {
      tool   = "Bash"
      when   = matches("push (--force", args.command)
      effect = "deny"
    }
    rule "function" {
      tool   = "Bash"
      when   = can(args.command)
      effect = "deny"
    }
    rule "variable" {
      tool   = "Bash"
      when   = arg.command == "ls" && mission.goal == "x"
      effect = "deny"
    }
    rule "types" {
      tool = "Bash"
      when = (
        args.amount > "500" ||
        tool == 1
      )
      effect = "deny"
    }
    rule "glob" {
      tool   = "mcp__[a-"
      effect = "deny"
    }
    rule "twice" {
      tool   = "a"
      effect = "allow"
    }
    rule "twice" {
      tool   = "b"
      effect = "allow"
    }
    rule "rewritten" {
      tool    = "a"
      effect  = "deny"
      rewrite = { a = 1 }
    }
    rule "nothing" {
      tool    = "a"
      effect  = "warn"
      rewrite = {}
    }
    rule "no-bool" {
      tool   = "a"
      effect = "warn"
      when   = "args.x == 1"
    }
    plugin "judge" {
      timeout    = "0s"
      on_failure = "ignore"
    }
  }
  risk {
  }
  intent {
    binding "pointer" {
      tool       = "*"
      argument   = "amount"
      op         = "lte"
      constraint = "max"
      severity   = "BLOCK"
    }
    binding "escape" {
      tool       = "*"
      argument   = "/a~2"
      op         = "le"
      constraint = "max"
      severity   = "ALLOW"
      on_missing = "ignore"
    }
  }
  approve {
  }
  redact "secrets" {
    tool    = ""
    pointer = "password"
  }
}
