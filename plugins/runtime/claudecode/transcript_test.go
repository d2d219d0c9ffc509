package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// transcripts are what Claude Code 2.1.332 printed in the missions of
// cli_test.go: the lines of its sessions, one file a session. They were
// recorded with AIRLOCK_RECORD=DIR.
const transcripts = "testdata/transcripts"

// player is a host that answers a machine at once, like the one that the
// transcript was recorded with.
type player struct {
	*bench
	seen    int
	made    map[string]string
	settled map[string]pluginv1.Outcome
	said    []string
}

func play(t *testing.T, generation uint64, carried string, fresh bool) *player {
	b := &bench{t: t, writes: map[string]string{}, opts: sessionOptions{prompt: "x", servers: []string{"desk"}, resume: true}}
	flag := "--resume"
	if fresh {
		flag = "--session-id"
	}
	b.open = &pluginv1.Open{Generation: generation, Mission: &pluginv1.MissionSpec{MissionId: "m", Objective: "x"},
		Plan: &pluginv1.LaunchPlan{Argv: []string{"claude", flag, testSession}, Env: map[string]string{resumeEnv: carried}}}
	b.m = newMachine(b.open, b.opts)
	b.took(b.m.start(b.now, 0))
	p := &player{bench: b, made: map[string]string{}, settled: map[string]pluginv1.Outcome{}}
	p.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{CaughtUp: &pluginv1.CaughtUp{}}})
	return p
}

// respond answers what has come out.
func (p *player) respond(generation uint64) {
	for ; p.seen < len(p.all); p.seen++ {
		switch x := p.all[p.seen].GetMessage().(type) {
		case *pluginv1.RunResponse_Proposal:
			p.said = append(p.said, fmt.Sprintf("propose %s %s parent=%v", x.Proposal.GetTool(), x.Proposal.GetProvenance(), x.Proposal.GetParent() != ""))
			id := x.Proposal.GetProposalId()
			switch c := command(x.Proposal); {
			case c == "touch blocked":
				p.verdict(id, blocked, "")
			case c == "touch before":
				p.verdict(id, warn, `{"command":"touch after"}`)
			case c == "touch deferred" && generation == 1:
				p.verdict(id, pauses, "")
			default:
				p.verdict(id, allow, "")
			}
		case *pluginv1.RunResponse_Admit:
			id := x.Admit.GetProposalId()
			p.made[id] = "inv-" + id
			if _, ended := p.settled["inv-"+id]; ended {
				p.refused(id, "consumed")
				continue
			}
			p.admitted(id)
		case *pluginv1.RunResponse_Settled:
			if _, again := p.settled[x.Settled.GetInvocationId()]; !again {
				p.said = append(p.said, "settled "+strings.TrimPrefix(x.Settled.GetOutcome().String(), "OUTCOME_"))
			}
			p.settled[x.Settled.GetInvocationId()] = x.Settled.GetOutcome()
		case *pluginv1.RunResponse_Question:
			p.host(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Answer{Answer: &pluginv1.Answer{HitlId: x.Question.GetHitlId(), Text: "Blue"}}})
			p.said = append(p.said, "question")
		case *pluginv1.RunResponse_Deferred:
			p.said = append(p.said, "deferred")
		case *pluginv1.RunResponse_Withdrawn:
			p.said = append(p.said, "withdrawn")
		case *pluginv1.RunResponse_CloseInput:
			p.said = append(p.said, "close")
		case *pluginv1.RunResponse_Problem:
			p.said = append(p.said, "problem "+x.Problem.GetMessage())
		}
	}
}

// whole plays a transcript; the plugin dies behind line breakAt.
func (p *player) whole(lines [][]byte, generation uint64, breakAt int) {
	p.respond(generation)
	for i, l := range lines {
		p.cli(string(l))
		p.respond(generation)
		if i+1 == breakAt {
			p.restart()
			p.respond(generation)
		}
	}
}

func TestRecordedSessionsAreFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		fresh bool
		exit  *pluginv1.Exit
		want  string
		next  pluginv1.Continuation
	}{
		{"TestTheRealCLIIsGovernedFromItsFirstCallToItsLast-1", true, &pluginv1.Exit{},
			"propose Bash builtin parent=false,settled SUCCEEDED,propose Read builtin parent=false,settled SUCCEEDED,propose Write builtin parent=false,settled SUCCEEDED," +
				"propose Edit builtin parent=false,settled SUCCEEDED,propose Bash builtin parent=false,propose Bash builtin parent=false,settled SUCCEEDED," +
				"propose AskUserQuestion builtin parent=false,question,settled SUCCEEDED,propose Bash builtin parent=false,settled SUCCEEDED,propose Bash builtin parent=false,deferred,close",
			pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED},
		{"TestTheRealCLIIsGovernedFromItsFirstCallToItsLast-2", false, &pluginv1.Exit{},
			"propose Bash builtin parent=false,settled SUCCEEDED,close", 0},
		{"TestTheRealCLIsSubAgentsAndServersAreGoverned-1", true, &pluginv1.Exit{},
			"propose mcp__desk__poke mcp:desk parent=false,settled SUCCEEDED,propose Agent builtin parent=false,propose Bash builtin parent=true,settled SUCCEEDED,settled SUCCEEDED,close", 0},
		{"TestTheRealCLIGoesOnAfterAKill-1", true, &pluginv1.Exit{Signal: 9},
			"propose Bash builtin parent=false,settled SUCCEEDED,propose Bash builtin parent=false,settled UNKNOWN", pluginv1.Continuation_CONTINUATION_RESUME},
		{"TestTheRealCLIBeginsAnewWhenItsSessionIsLost-1", false, &pluginv1.Exit{Code: 1}, "", pluginv1.Continuation_CONTINUATION_RESUME},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(transcripts, c.file+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			generation, carried := uint64(1), ""
			if strings.HasSuffix(c.file, "-2") {
				generation, carried = 2, `{"v":1,"session":"`+testSession+`","after":"deferred","deferred":["x"]}`
			}
			for breakAt := range len(lines) + 1 {
				p := play(t, generation, carried, c.fresh)
				p.whole(lines, generation, breakAt)
				r := p.exit(proto.CloneOf(c.exit))
				p.respond(generation)
				if r.GetContinuation() != c.next {
					t.Fatalf("broken behind line %d: result %v", breakAt, r)
				}
				if got := strings.Join(p.said, ","); breakAt == 0 && strings.TrimSuffix(got, ",withdrawn") != c.want {
					t.Fatalf("said %s\nwant %s", got, c.want)
				}
				// Whatever is broken, each admitted call has one end, and none is let through twice.
				if want := strings.Count(c.want, "settled"); len(p.settled) != want || len(p.made) < want {
					t.Fatalf("broken behind line %d: admitted %v, ends %v", breakAt, slices.Sorted(maps.Keys(p.made)), p.settled)
				}
				for _, s := range p.said {
					if strings.HasPrefix(s, "problem") {
						t.Fatalf("broken behind line %d: %s", breakAt, s)
					}
				}
			}
		})
	}
}
