package driver

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// ownEngine is an engine that a test may harm, with its images.
func ownEngine(t *testing.T) *dockertest.Engine {
	t.Helper()
	e := dockertest.Start(t)
	if err := e.Import(); err != nil {
		t.Fatal(err)
	}
	return e
}

func up(t *testing.T, e *dockertest.Engine) {
	t.Helper()
	if err := e.Up(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) recover(c *pluginv1.Cell) *pluginv1.RecoverResponse {
	r.t.Helper()
	got, err := r.client.Recover(r.ctx(), &pluginv1.RecoverRequest{Ref: c.GetRef()})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func TestACellLivesOnWhileItsEngineIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	r := newRig(t, e, nil)
	c := r.create(r.spec("lives"))
	conn := r.link(c)
	r.begin(conn, c, "ticks", "/bin/sh", "-c", "i=0; while [ ! -e end ]; do echo $i; i=$((i+1)); echo $i > n; sleep 0.01; done; exit 7")
	ticks := func() string { return readFile(r.work("lives", "n")) }
	moves := func(what string) {
		t.Helper()
		was := ticks()
		until(t, what, func() bool { return ticks() != was })
	}
	moves("the first lines")
	r.awaitHealth(healthy)

	e.Kill()
	m := r.awaitHealth(unavailable)
	for _, word := range []string{e.Socket(), "Start it", "go on running"} {
		if !strings.Contains(m.GetReason(), word) {
			t.Errorf("health says %q, without %q", m.GetReason(), word)
		}
	}
	moves("lines while the engine is dead")
	if _, err := r.client.Inspect(r.ctx(), &pluginv1.InspectRequest{Ref: c.GetRef()}); status.Code(err) != codes.Unavailable {
		t.Errorf("inspect without an engine: %v", err)
	}
	up(t, e)
	r.awaitHealth(healthy)
	got := r.recover(c)
	if got.GetStatus().GetState() != pluginv1.CellState_CELL_STATE_RUNNING || got.GetCell().GetLink() != c.GetLink() {
		t.Fatalf("recover answers %v", got)
	}
	if a, b := handleOf(t, got.GetCell().GetRef()), handleOf(t, c.GetRef()); a.Init != b.Init || a.Container != b.Container {
		t.Errorf("the handle was %+v and is %+v", b, a)
	}
	moves("lines after the restart")
	r.say(conn, c, "end", "touch end")
	for i, line := range strings.Fields(r.read(conn, "ticks")) {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d of the output is %s: there is a gap", i, line)
		}
	}
	// Its end is proven by the new engine too.
	stop, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: c.GetRef(), Grace: durationpb.New(20 * time.Second)})
	if err != nil || stop.GetProof().GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED {
		t.Errorf("stop answers %v, %v", stop, err)
	}
	r.destroy("lives")
}

func TestAnEndThatNobodyWatchedIsKept(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	r := newRig(t, e, nil)
	killed, asked, lost := r.create(r.spec("killed")), r.create(r.spec("asked")), r.create(r.spec("lost"))
	kill := func(c *pluginv1.Cell, sig syscall.Signal) {
		t.Helper()
		p := handleOf(t, c.GetRef()).Init
		if err := syscall.Kill(p.PID, sig); err != nil {
			t.Fatal(err)
		}
		until(t, "the agent's end", func() bool { return !p.Alive() })
	}
	r.kill()
	kill(killed, syscall.SIGKILL)
	kill(asked, syscall.SIGTERM)
	for _, c := range []*pluginv1.Cell{killed, asked} {
		until(t, "the engine has seen the end", func() bool {
			got, err := r.api().ContainerInspect(r.ctx(), containerName(r.host, c.GetRef().GetCellId()), client.ContainerInspectOptions{})
			return err == nil && !got.Container.State.Running
		})
	}
	e.Kill()
	kill(lost, syscall.SIGKILL)
	up(t, e)
	r.start()
	ended := func(reason pluginv1.ExitReason, detail string) func(*pluginv1.CellStatus) bool {
		return func(st *pluginv1.CellStatus) bool {
			return st.GetExitReason() == reason && strings.Contains(st.GetDetail(), detail)
		}
	}
	byKill := ended(pluginv1.ExitReason_EXIT_REASON_KILLED, "signal 9")
	for _, tt := range []struct {
		cell *pluginv1.Cell
		is   func(*pluginv1.CellStatus) bool
	}{
		{killed, byKill},
		{asked, ended(pluginv1.ExitReason_EXIT_REASON_EXITED, "code 0")},
		// Without the engine its container runtime may have seen the end or not.
		{lost, func(st *pluginv1.CellStatus) bool {
			return byKill(st) || ended(pluginv1.ExitReason_EXIT_REASON_LOST, "does not know how")(st)
		}},
	} {
		id := tt.cell.GetRef().GetCellId()
		st := r.recover(tt.cell).GetStatus()
		if st.GetState() != pluginv1.CellState_CELL_STATE_EXITED || !tt.is(st) {
			t.Errorf("cell %s ended as %v", id, st)
		}
		if !st.GetStartedAt().AsTime().Equal(tt.cell.GetStartedAt().AsTime()) {
			t.Errorf("cell %s started at %v, now at %v", id, tt.cell.GetStartedAt().AsTime(), st.GetStartedAt().AsTime())
		}
		stop, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: &pluginv1.CellRef{CellId: id, Incarnation: 1}})
		if err != nil || stop.GetProof().GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED {
			t.Errorf("stop of cell %s, which has ended, answers %v, %v", id, stop, err)
		}
		r.destroy(id)
	}
}

func TestAnEngineThatHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	r := newRig(t, e, nil)
	c, frozen := r.create(r.spec("hung")), r.create(r.spec("frozen"))
	r.awaitHealth(healthy)
	if _, err := r.client.Pause(r.ctx(), &pluginv1.PauseRequest{Ref: frozen.GetRef()}); err != nil {
		t.Fatal(err)
	}
	e.Hang()
	defer e.Continue()
	m := r.awaitHealth(unavailable)
	if !strings.Contains(m.GetReason(), "hangs") {
		t.Errorf("health says %q", m.GetReason())
	}
	spec := r.spec("never")
	for name, call := range map[string]func(context.Context) error{
		"inspect": func(ctx context.Context) error {
			_, err := r.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: c.GetRef()})
			return err
		},
		"create": func(ctx context.Context) error {
			_, err := r.client.Create(ctx, &pluginv1.CreateRequest{Spec: spec})
			return err
		},
		"destroy": func(ctx context.Context) error {
			_, err := r.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: "other"}, Force: true})
			return err
		},
		"list": func(ctx context.Context) error {
			stream, err := r.client.List(ctx, &pluginv1.ListRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err := call(ctx)
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What must be stopped is stopped all the same, and proven by the kernel.
	for _, cell := range []*pluginv1.Cell{c, frozen} {
		stop, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: cell.GetRef()})
		if err != nil || stop.GetProof().GetMethod() != pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY {
			t.Errorf("stop answers %v, %v", stop, err)
		}
		if handleOf(t, cell.GetRef()).Init.Alive() {
			t.Error("the agent lives after its stop")
		}
	}
	e.Continue()
	r.awaitHealth(healthy)
	until(t, "the engine to see the end", func() bool {
		return r.inspect(c).GetState() == pluginv1.CellState_CELL_STATE_EXITED && r.inspect(frozen).GetState() == pluginv1.CellState_CELL_STATE_EXITED
	})
	r.destroy("hung")
	r.destroy("frozen")
	// What the engine was asked for while it hung may come to be; it is removed.
	until(t, "the cell that was given up to be gone", func() bool {
		if len(r.list(r.ctx())) > 0 {
			r.destroy("never")
		}
		return len(r.list(r.ctx())) == 0
	})
}

func TestAnEngineWithoutLiveRestoreIsDegradedAndTakesItsCellsAlong(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	if err := e.Down(); err != nil {
		t.Fatal(err)
	}
	e.LiveRestore = false
	up(t, e)
	r := newRig(t, e, nil)
	m := r.awaitHealth(func(m *pluginv1.HealthResponse) bool {
		return m.GetState() == pluginv1.HealthState_HEALTH_STATE_DEGRADED
	})
	if !strings.Contains(m.GetReason(), `"live-restore": true`) || m.GetAttributes()["engine.live_restore"] != "false" {
		t.Errorf("health says %v", m)
	}
	c := r.create(r.spec("taken"))
	if err := e.Down(); err != nil {
		t.Fatal(err)
	}
	up(t, e)
	r.awaitHealth(func(m *pluginv1.HealthResponse) bool { return !unavailable(m) })
	if st := r.recover(c).GetStatus(); st.GetState() != pluginv1.CellState_CELL_STATE_EXITED {
		t.Errorf("recover says %v", st)
	}
	r.destroy("taken")
}
