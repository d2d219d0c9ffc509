package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// block is a config block as the host sends it: defaults filled in.
func block(t *testing.T, change map[string]any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, a := range (&command{}).Describe().GetSchema().GetAttributes() {
		var v any
		if a.GetDefaultJson() != "" {
			if err := json.Unmarshal([]byte(a.GetDefaultJson()), &v); err != nil {
				t.Fatalf("default of %s: %v", a.GetName(), err)
			}
		}
		all[a.GetName()] = v
	}
	maps.Copy(all, change)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func configured(t *testing.T, change map[string]any) *command {
	t.Helper()
	c := &command{}
	if err := c.Configure(context.Background(), &pluginv1.ConfigureRequest{ConfigJson: block(t, change)}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryAttributeIsDescribed(t *testing.T) {
	t.Parallel()
	d := (&command{}).Describe()
	if d.GetName() != "command" || !slices.Equal(d.GetCapabilities(), []string{"runtime:custom:command", "hitl"}) {
		t.Fatalf("describes itself as %q with %v", d.GetName(), d.GetCapabilities())
	}
	for _, a := range d.GetSchema().GetAttributes() {
		if a.GetDescription() == "" {
			t.Errorf("%s has no description", a.GetName())
		}
	}
}

func TestValidateLeadsToTheAttribute(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change map[string]any
		want   []string // paths
	}{
		"defaults":                 {nil, nil},
		"good prompts":             {map[string]any{"prompts": []string{`\(y/n\)\s*$`}}, nil},
		"a broken pattern":         {map[string]any{"prompts": []string{`ok$`, `(`}}, []string{"prompts[1]"}},
		"a look-behind is no RE2":  {map[string]any{"prompts": []string{`(?<=x)y`}}, []string{"prompts[0]"}},
		"matches everything":       {map[string]any{"prompts": []string{`.*`}}, []string{"prompts[0]"}},
		"an empty pattern":         {map[string]any{"prompts": []string{``}}, []string{"prompts[0]"}},
		"prompts without terminal": {map[string]any{"prompts": []string{`:$`}, "terminal": false}, []string{"prompts"}},
		"no shell":                 {map[string]any{"shell": []string{}}, []string{"shell"}},
		"a shell without a name":   {map[string]any{"shell": []string{"", "-c"}}, []string{"shell"}},
		"an odd variable":          {map[string]any{"env": map[string]string{"A=B": "x", "OK": "y"}}, []string{"env.A=B"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range (&command{}).Validate(context.Background(), block(t, tt.change)) {
				if d.GetSummary() == "" || d.GetDetail() == "" {
					t.Errorf("a finding without words: %v", d)
				}
				got = append(got, pathOf(d))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("findings at %v, want %v", got, tt.want)
			}
		})
	}
}

func pathOf(d *pluginv1.Diagnostic) string {
	var b strings.Builder
	for _, s := range d.GetPath() {
		switch s := s.GetStep().(type) {
		case *pluginv1.PathStep_Attribute:
			b.WriteString(s.Attribute)
		case *pluginv1.PathStep_Index:
			fmt.Fprintf(&b, "[%d]", s.Index)
		case *pluginv1.PathStep_Key:
			b.WriteString("." + s.Key)
		}
	}
	return b.String()
}

func TestABadReconfigureKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	c := configured(t, map[string]any{"shell": []string{"/bin/a"}})
	err := c.Configure(context.Background(), &pluginv1.ConfigureRequest{ConfigJson: block(t, map[string]any{"shell": []string{}})})
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("a bad configuration gives %v", err)
	}
	if got := plan(t, c, "x").GetArgv(); !slices.Equal(got, []string{"/bin/a", "x"}) {
		t.Errorf("plans %q", got)
	}
}

func plan(t *testing.T, c *command, objective string) *pluginv1.LaunchPlan {
	t.Helper()
	r, err := c.Plan(context.Background(), &pluginv1.PlanRequest{Mission: &pluginv1.MissionSpec{MissionId: "m", Objective: objective}})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetPlan()
}

func TestPlan(t *testing.T) {
	t.Parallel()
	p := plan(t, configured(t, nil), "echo 'a b' && exit 3")
	if !slices.Equal(p.GetArgv(), []string{"/bin/sh", "-c", "echo 'a b' && exit 3"}) {
		t.Errorf("argv %q", p.GetArgv())
	}
	if p.GetTerminal().GetCols() != 80 || p.GetTerminal().GetRows() != 24 || p.GetWatchWaiting() || string(p.GetSubmitKey()) != "\n" {
		t.Errorf("terminal %v, watch %v, submit %q", p.GetTerminal(), p.GetWatchWaiting(), p.GetSubmitKey())
	}
	if p.GetBoundary() != pluginv1.Boundary_BOUNDARY_NONE || p.GetOutput() != pluginv1.OutputNeed_OUTPUT_NEED_NONE ||
		p.GetOnFull() != pluginv1.OnFull_ON_FULL_BLOCK {
		t.Errorf("boundary %v, output %v, on full %v", p.GetBoundary(), p.GetOutput(), p.GetOnFull())
	}
	p = plan(t, configured(t, map[string]any{"prompts": []string{`:$`}, "env": map[string]string{"A": "b"}, "cols": 120}), "x")
	if !p.GetWatchWaiting() || p.GetEnv()["A"] != "b" || p.GetTerminal().GetCols() != 120 {
		t.Errorf("with prompts: %v", p)
	}
	p = plan(t, configured(t, map[string]any{"terminal": false}), "x")
	if p.GetTerminal() != nil || p.GetWatchWaiting() {
		t.Errorf("without a terminal: %v", p)
	}
}

func TestPlanRefusesWhatIsNoCommand(t *testing.T) {
	t.Parallel()
	c := configured(t, nil)
	for _, objective := range []string{"", " \n\t", "a\x00b"} {
		_, err := c.Plan(context.Background(), &pluginv1.PlanRequest{Mission: &pluginv1.MissionSpec{Objective: objective}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("objective %q gives %v", objective, err)
		}
	}
}

func TestPlansDoNotShareTheirArguments(t *testing.T) {
	t.Parallel()
	c := configured(t, nil)
	a, b := plan(t, c, "first"), plan(t, c, "second")
	if a.GetArgv()[2] != "first" || b.GetArgv()[2] != "second" {
		t.Errorf("%q and %q", a.GetArgv(), b.GetArgv())
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		exit    *pluginv1.Exit
		ok      bool
		reason  string
		summary string
	}{
		"good":    {&pluginv1.Exit{}, true, "", "command completed successfully"},
		"code":    {&pluginv1.Exit{Code: 3}, false, "non_zero_exit", "command exited with code 3"},
		"code255": {&pluginv1.Exit{Code: 255}, false, "non_zero_exit", "command exited with code 255"},
		"signal":  {&pluginv1.Exit{Signal: 9}, false, "signal", "ended by signal 9 (killed)"},
		"oom":     {&pluginv1.Exit{Signal: 9, Oom: true}, false, "signal", "ended by signal 9 (killed): out of memory"},
		"unknown": {&pluginv1.Exit{Unknown: true}, false, "exit_unknown", "nobody knows how the command ended"},
	} {
		got := result(tt.exit)
		if got.GetOk() != tt.ok || got.GetReason() != tt.reason || got.GetSummary() != tt.summary {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// serve runs the plugin behind a real socket.
func serve(t *testing.T, c *command) pluginv1.RuntimeClient {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtime.Register(s, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); s.Stop(); <-done })
	return pluginv1.NewRuntimeClient(conn)
}

type session struct {
	t      *testing.T
	stream pluginv1.Runtime_RunClient
}

func open(t *testing.T, client pluginv1.RuntimeClient, state []byte) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	stream, err := client.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t, stream}
	s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Open{Open: &pluginv1.Open{SessionId: "s1", State: state, Offset: 7, Generation: 1}}})
	return s
}

func (s *session) send(m *pluginv1.RunRequest) {
	s.t.Helper()
	if err := s.stream.Send(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) wait(line string, offset uint64) {
	s.t.Helper()
	s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Waiting{Waiting: &pluginv1.Waiting{ScreenLine: line, Offset: offset, Since: timestamppb.Now()}}})
}

func (s *session) exit(e *pluginv1.Exit) {
	s.t.Helper()
	s.send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_Exit{Exit: e}})
}

func (s *session) next() *pluginv1.RunResponse {
	s.t.Helper()
	m, err := s.stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func TestASessionReportsProgressOnceAndItsResult(t *testing.T) {
	t.Parallel()
	client := serve(t, configured(t, nil))
	s := open(t, client, nil)
	if p := s.next().GetProgress(); p.GetPhase() != "execution" || p.Pct != nil || p.Iteration != nil {
		t.Fatalf("first comes %v", p)
	}
	kept := s.next().GetCheckpoint()
	if len(kept.GetState()) == 0 || kept.GetOffset() != 7 {
		t.Fatalf("then comes %v", kept)
	}
	// A new plugin process, or the next session of the mission.
	again := open(t, client, kept.GetState())
	again.exit(&pluginv1.Exit{})
	if r := again.next().GetResult(); !r.GetOk() {
		t.Errorf("after a restart the first message is not the result: %v", r)
	}
	if m, err := again.stream.Recv(); err == nil {
		t.Errorf("after the result comes %v", m)
	}
	s.exit(&pluginv1.Exit{Code: 1})
	if r := s.next().GetResult(); r.GetOk() || r.GetReason() != "non_zero_exit" {
		t.Errorf("result %v", r)
	}
}

func TestOnlyAPromptThatIsConfiguredIsAQuestion(t *testing.T) {
	t.Parallel()
	s := open(t, serve(t, configured(t, map[string]any{"prompts": []string{`\(y/n\)\s*$`, `^Name:`}})), []byte(started))
	s.wait("still compiling", 10) // a read, but no prompt
	s.wait("Go on? (y/n) ", 20)
	q := s.next().GetQuestion()
	if q.GetPrompt() != "Go on? (y/n)" || q.GetHitlId() == "" {
		t.Fatalf("question %v", q)
	}
	s.wait("Go on? (y/n) ", 20) // reported again after a reconnect
	if again := s.next().GetQuestion(); again.GetHitlId() != q.GetHitlId() {
		t.Errorf("the same read has the ids %q and %q", q.GetHitlId(), again.GetHitlId())
	}
	s.wait("Go on? (y/n) ", 48)
	if other := s.next().GetQuestion(); other.GetHitlId() == q.GetHitlId() {
		t.Errorf("another read has the same id")
	}
	if a, b := questionID("s", 12), questionID("s1", 2); a == b {
		t.Errorf("ids of different sessions meet")
	}
}

func TestAStreamWithoutOpenIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := serve(t, configured(t, nil)).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pluginv1.RunRequest{Message: &pluginv1.RunRequest_CaughtUp{}})
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("gives %v", err)
	}
}
