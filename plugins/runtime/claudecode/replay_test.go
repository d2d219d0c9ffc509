package main

import (
	"fmt"
	"maps"
	"testing"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// step is one thing that happens in the life of a call, and what the machine
// says about it when it has seen all before it.
type step struct {
	do   func(*bench)
	want string
	// again is what is said after a restart of the plugin behind this step.
	again string
}

func life() []step {
	return []step{
		{func(b *bench) { b.pre("t", "Bash", `{"c":1}`, "") }, "propose(t)", "propose(t)"},
		{func(b *bench) { b.verdict("t", allow, "") }, "allow(pre-t)", "propose(t)"},
		{func(b *bench) { b.can("t", "Bash", `{"c":1}`) }, "admit(t,fp-t)", "propose(t)"},
		{func(b *bench) { b.admitted("t") }, "run(can-t)", ""},
		{func(b *bench) { b.post("t", "Bash", "PostToolUse") }, "settled(inv-t,SUCCEEDED) seen(post-t)", "seen(post-t)"},
		{func(b *bench) { b.printed("t", false, "") }, "", "seen(post-t)"},
	}
}

// The plugin dies behind each step; what it does then leads to the same end,
// and nothing is written that was not written before.
func TestARestartAtEachStepLosesNothing(t *testing.T) {
	t.Parallel()
	for at := range life() {
		t.Run(fmt.Sprintf("after step %d", at), func(t *testing.T) {
			t.Parallel()
			b := begin(t)
			for i, s := range life() {
				b.out = nil
				s.do(b)
				b.want(s.want)
				if i != at {
					continue
				}
				before := maps.Clone(b.writes)
				b.restart()
				b.want(s.again)
				if s.again == "propose(t)" && i > 0 { // the host knows its decision
					b.verdict("t", allow, "")
				}
				for key, data := range b.writes {
					if was, known := before[key]; known && was != data {
						t.Errorf("%s is answered with %q, and was with %q", key, data, was)
					}
				}
			}
			b.result("")
			b.cli(`{"type":"system","subtype":"session_state_changed","state":"idle"}`)
			if r := b.exit(&pluginv1.Exit{}); !r.GetOk() {
				t.Errorf("result %v", r)
			}
		})
	}
}
