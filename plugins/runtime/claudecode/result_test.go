package main

import (
	"strings"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestResultsAreWhatAnOperatorUnderstands(t *testing.T) {
	t.Parallel()
	const (
		end    = pluginv1.Continuation_CONTINUATION_END
		resume = pluginv1.Continuation_CONTINUATION_RESUME
		later  = pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED
	)
	for name, c := range map[string]struct {
		line    string
		exit    *pluginv1.Exit
		ok      bool
		reason  string
		summary string
		next    pluginv1.Continuation
	}{
		"done":            {`"is_error":false,"terminal_reason":"completed","result":"\n\n All good.\nmore"`, &pluginv1.Exit{}, true, "", "All good.", 0},
		"deferred":        {`"is_error":false,"terminal_reason":"tool_deferred"`, &pluginv1.Exit{}, false, "", "waits for a human", later},
		"deferred again":  {`"is_error":false,"terminal_reason":"completed","stop_reason":"tool_deferred"`, &pluginv1.Exit{}, false, "", "waits for a human", later},
		"turns":           {`"is_error":true,"subtype":"error_max_turns","terminal_reason":"max_turns","num_turns":4`, &pluginv1.Exit{Code: 1}, false, "budget", "after 4 of them", end},
		"budget":          {`"is_error":true,"subtype":"error_max_budget_usd","terminal_reason":"budget_exhausted"`, &pluginv1.Exit{Code: 1}, false, "budget", "max_budget_usd", end},
		"gateway budget":  {`"is_error":true,"terminal_reason":"api_error","api_error_status":403,"result":"API Error: 403 airlock: the mission's budget is spent"`, &pluginv1.Exit{Code: 1}, false, "budget", "budget is spent", end},
		"gateway path":    {`"is_error":true,"terminal_reason":"api_error","api_error_status":403,"result":"API Error: 403 airlock: this path is not allowed at gateway"`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "the gateway refused", end},
		"no key":          {`"is_error":true,"terminal_reason":"api_error","api_error_status":401`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "refused the credential (401)", end},
		"no model":        {`"is_error":true,"terminal_reason":"api_error","api_error_status":404`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "does not know the model", end},
		"limits":          {`"is_error":true,"terminal_reason":"api_error","api_error_status":429`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "limits the rate", end},
		"overload":        {`"is_error":true,"terminal_reason":"api_error","api_error_status":529`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "overloaded", end},
		"broken API":      {`"is_error":true,"terminal_reason":"api_error","api_error_status":502,"result":"bad gateway"`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "(502): bad gateway", end},
		"unreachable":     {`"is_error":true,"terminal_reason":"api_error"`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "could not be reached", end},
		"aborted":         {`"is_error":true,"terminal_reason":"aborted_streaming"`, &pluginv1.Exit{}, false, "non_zero_exit", "interrupted", end},
		"lost":            {`"is_error":true,"errors":["No conversation found with session ID: x"]`, &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "begins anew", resume},
		"done but killed": {`"is_error":false,"terminal_reason":"completed"`, &pluginv1.Exit{Signal: 15}, false, "signal", "signal 15", resume},
		"killed":          {"", &pluginv1.Exit{Signal: 9}, false, "signal", "signal 9 (killed)", resume},
		"unknown":         {"", &pluginv1.Exit{Unknown: true}, false, "exit_unknown", "nobody knows", resume},
		"crashed":         {"", &pluginv1.Exit{Code: 1}, false, "non_zero_exit", "in the middle of its work", resume},
		"silent":          {"", &pluginv1.Exit{}, false, "exit_unknown", "without saying how", end},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			if c.line != "" {
				b.cli(`{"type":"result",` + c.line + `}`)
			}
			r := b.exit(c.exit)
			if r.GetOk() != c.ok || r.GetReason() != c.reason || !strings.Contains(r.GetSummary(), c.summary) || r.GetContinuation() != c.next {
				t.Errorf("result %v", r)
			}
		})
	}
}

func TestWhyItCouldNotBegin(t *testing.T) {
	t.Parallel()
	b := newBench(t, "--session-id", nil)
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Output{Output: &pluginv1.Output{Stream: pluginv1.Stream_STREAM_STDERR, Data: []byte("warning\nerror: unknown option '--await-initialize'\n")}}})
	r := b.exit(&pluginv1.Exit{Code: 1})
	if r.GetReason() != "dispatch_error" || !strings.Contains(r.GetSummary(), "unknown option") || r.GetContinuation() != pluginv1.Continuation_CONTINUATION_END {
		t.Errorf("result %v", r)
	}
	b = newBench(t, "--session-id", nil)
	b.opts.resume = false
	b.m.opts.resume = false
	b.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
	b.hello()
	if r := b.exit(&pluginv1.Exit{Signal: 11}); r.GetContinuation() != pluginv1.Continuation_CONTINUATION_END {
		t.Errorf("result without resume_after_crash %v", r)
	}
}

func TestUsageIsWhatCameOnTop(t *testing.T) {
	t.Parallel()
	b := begin(t)
	b.result("")
	b.result("")                                                                                                                                             // the same totals again
	b.cli(`{"type":"result","is_error":false,"total_cost_usd":0.015,"modelUsage":{"a":{"inputTokens":20,"outputTokens":2},"b":{"cacheReadInputTokens":5}}}`) // 27 now
	b.cli(`{"type":"result","is_error":false,"total_cost_usd":0.001,"modelUsage":{"a":{"inputTokens":3}}}`)                                                  // they began anew
	var tokens, cost int64
	for _, m := range b.all {
		tokens += m.GetUsage().GetTokens()
		cost += m.GetUsage().GetCostMicroUsd()
	}
	if tokens != 30 || cost != 16_000 {
		t.Errorf("%d tokens, %d µ$", tokens, cost)
	}
}

func TestProgressComesOnceASecond(t *testing.T) {
	t.Parallel()
	b := begin(t)
	count := func() (n int, last *pluginv1.Progress) {
		for _, m := range b.all {
			if p := m.GetProgress(); p != nil {
				n, last = n+1, p
			}
		}
		return n, last
	}
	before, _ := count()
	say := func(id, content string) {
		b.cli(`{"type":"assistant","message":{"id":"` + id + `","content":[` + content + `],"usage":{"input_tokens":100,"output_tokens":1}}}`)
	}
	say("m1", `{"type":"text","text":"I will look."}`)
	say("m1", `{"type":"tool_use","id":"t","name":"Bash","input":{"command":"cat secret","description":"Look at it"}}`)
	say("m2", `{"type":"tool_use","id":"t","name":"Read","input":{"file_path":"/w/a.go"}}`)
	if n, _ := count(); n != before { // the start was told just now
		t.Errorf("%d at once", n-before)
	}
	b.tick(oneSecond)
	n, p := count()
	if n != before+1 || p.GetIteration() != 2 || p.GetTokens() != 202 || p.GetPhase() != "execution" || p.GetSummary() != "Read: /w/a.go" {
		t.Errorf("%d, the last %v", n-before, p)
	}
	for _, m := range b.all {
		if strings.Contains(m.GetProgress().GetSummary(), "secret") {
			t.Errorf("a command is in the progress: %v", m)
		}
	}
	b.tick(oneSecond)
	if n, _ := count(); n != before+1 {
		t.Error("the same was told twice")
	}
}
