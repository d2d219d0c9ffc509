package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/airlock-host/airlock/plugins/isolation/docker/dockertest"
	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestTwoHostsAtOneEngineDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	a, b := newRig(t, nil, nil), newRig(t, nil, nil)
	ca, cb := a.create(a.spec("same")), b.create(b.spec("same"))
	ha, hb := handleOf(t, ca.GetRef()), handleOf(t, cb.GetRef())
	if ha.Container == hb.Container {
		t.Fatal("two hosts have one container")
	}
	extra := b.create(b.spec("extra"))
	if got := a.list(a.ctx()); len(got) != 1 || got["same"] == nil || strings.Contains(string(got["same"].GetRef().GetDriverState()), hb.Container) {
		t.Errorf("the first host lists %v", got)
	}
	for what, err := range map[string]error{
		"inspect": second(a.client.Inspect(a.ctx(), &pluginv1.InspectRequest{Ref: extra.GetRef()})),
		"stop":    second(a.client.Stop(a.ctx(), &pluginv1.StopRequest{Ref: extra.GetRef()})),
		"recover": second(a.client.Recover(a.ctx(), &pluginv1.RecoverRequest{Ref: extra.GetRef()})),
	} {
		if status.Code(err) != codes.NotFound {
			t.Errorf("%s of the other host's cell: %v", what, err)
		}
	}
	a.destroy("extra")
	a.destroy("same")
	for _, c := range []*pluginv1.Cell{cb, extra} {
		if st := b.inspect(c); st.GetState() != pluginv1.CellState_CELL_STATE_RUNNING {
			t.Errorf("the second host's cell is %v", st)
		}
	}
	b.destroy("same")
	b.destroy("extra")
}

func second[T any](_ T, err error) error { return err }

func TestNothingIsLeftAfterManyCells(t *testing.T) {
	t.Parallel()
	e := dockertest.Start(t) // one that nobody else uses, to count at
	if err := e.Import(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, e, nil)
	networks := r.networks()
	for i := range 30 {
		id := fmt.Sprintf("c%d", i)
		spec := r.spec(id)
		c := r.create(spec)
		h := handleOf(t, c.GetRef())
		if len(h.Groups) == 0 {
			t.Fatal("the cell has no control groups")
		}
		if i%3 == 0 {
			if _, err := r.client.Pause(r.ctx(), &pluginv1.PauseRequest{Ref: c.GetRef()}); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			if _, err := r.client.Stop(r.ctx(), &pluginv1.StopRequest{Ref: c.GetRef()}); err != nil {
				t.Fatal(err)
			}
		}
		r.destroy(id)
		if left, _ := os.ReadDir(spec.GetLinkDir()); len(left) > 0 {
			t.Errorf("%v is left in the link directory", left)
		}
		if h.Init.Alive() {
			t.Error("the agent lives")
		}
		if found, _ := kernel.Find(h.Container); len(found) > 0 {
			t.Errorf("control groups are left: %v", found)
		}
	}
	all, err := r.api().ContainerList(r.ctx(), client.ContainerListOptions{All: true})
	if err != nil || len(all.Items) > 0 {
		t.Errorf("containers are left: %v, %v", all.Items, err)
	}
	if v := r.volumes(); len(v) > 0 {
		t.Errorf("volumes are left: %v", v)
	}
	if n := r.networks(); n != networks {
		t.Errorf("%d networks are left of %d", n, networks)
	}
	for _, dir := range []string{"containers", "overlay2/l"} {
		if left, err := os.ReadDir(filepath.Join(e.Dir, "data", dir)); err == nil && dir == "containers" && len(left) > 0 {
			t.Errorf("%v is left of the engine's %s", left, dir)
		}
	}
}

func TestPathsAndLabelsMayHoldAnything(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	spec := r.spec("odd")
	const odd = "Ünïcode 任务 🚀, with: comma, \"quote\" 'and' $HOME=x\\y"
	dir := filepath.Join(r.dir, odd)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	spec.Volumes[0].HostPath, spec.Volumes[0].Target, spec.Volumes[0].VolumeId = dir, "/work space/ü", odd
	spec.Labels = map[string]string{"mission": odd, odd: "key", "a/../b": strings.Repeat("𝄞", 300), labelCellID: "forged", labelOwner: "forged"}
	c := r.create(spec)
	if got := r.say(r.link(c), c, odd, "pwd; echo yes > ü.txt"); got != "/work space/ü\n" {
		t.Errorf("the workspace is %q", got)
	}
	if got := readFile(filepath.Join(dir, "ü.txt")); got != "yes" {
		t.Errorf("the file holds %q", got)
	}
	got := r.list(r.ctx())["odd"].GetLabels()
	for k, v := range spec.GetLabels() {
		if got[k] != v {
			t.Errorf("label %q is %q, not %q", k, got[k], v)
		}
	}
	r.destroy("odd")
}

// A start that was interrupted has left a container; it is shown, and the next
// start makes the cell anew. A stranger's container is left alone.
func TestWhatAnInterruptedStartHasLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	spec := r.spec("left")
	in := &instance{hostID: r.host, label: "test", config: Config{Image: dockertest.Busybox}, engine: &engine{socket: r.engine.Socket()}}
	api := r.api()
	info, err := api.Info(r.ctx(), client.InfoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.plan(spec, in.facts(spec, &info.Info), &info.Info, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.ContainerCreate(r.ctx(), p.options); err != nil {
		t.Fatal(err)
	}
	if l := r.list(r.ctx())["left"]; l.GetState() != pluginv1.CellState_CELL_STATE_EXITED {
		t.Errorf("list shows %v", l)
	}
	st := r.inspect(&pluginv1.Cell{Ref: &pluginv1.CellRef{CellId: "left"}})
	if st.GetExitReason() != pluginv1.ExitReason_EXIT_REASON_LOST {
		t.Errorf("inspect says %v", st)
	}
	c := r.create(spec)
	if got := r.say(r.link(c), c, "s", "echo yes"); got != "yes\n" {
		t.Errorf("the cell says %q", got)
	}
	r.destroy("left")

	stranger := r.spec("stranger")
	p.options.Name, p.options.Config.Labels = containerName(r.host, "stranger"), nil
	made, err := api.ContainerCreate(r.ctx(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Create(r.ctx(), &pluginv1.CreateRequest{Spec: stranger}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("create where a stranger has the name: %v", err)
	}
	_, err = r.client.Destroy(r.ctx(), &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: "stranger"}, Force: true})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("destroy of a stranger's container: %v", err)
	}
	if _, err := api.ContainerRemove(r.ctx(), made.ID, client.ContainerRemoveOptions{}); err != nil {
		t.Errorf("the stranger's container: %v", err)
	}
}

// A caller that goes away in the middle of a start leaves nothing.
func TestAStartThatIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	for i, ms := range []int{2, 10, 30, 60, 120, 200} {
		spec := r.spec(fmt.Sprintf("g%d", i))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
		_, err := r.client.Create(ctx, &pluginv1.CreateRequest{Spec: spec})
		cancel()
		if err == nil {
			r.destroy(spec.GetCellId())
		}
		until(t, "the start to be undone", func() bool {
			left, _ := os.ReadDir(spec.GetLinkDir())
			return len(r.list(r.ctx())) == 0 && len(left) == 0
		})
	}
}
