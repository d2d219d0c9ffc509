package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/airlock-host/airlock/plugins/isolation/docker/internal/kernel"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	// patience is how long the engine may take over a kill before the kernel is
	// asked to do it.
	patience = 5 * time.Second
	// emptyTime is how long a control group may take to be empty after its end.
	emptyTime = 10 * time.Second
)

// Stop ends everything in a cell. It takes no lock: a Stop that waits for its
// grace must not delay one that has none.
func (d *Driver) Stop(ctx context.Context, req *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	in, err := d.configured()
	if err != nil {
		return nil, err
	}
	look, cancel := context.WithTimeout(ctx, patience)
	b, err := in.find(look, req.GetRef(), false)
	cancel()
	if err != nil {
		return d.stopWithout(ctx, in, req.GetRef(), err)
	}
	proof, err := d.end(ctx, in, b, req.GetGrace().AsDuration())
	if err != nil {
		return nil, err
	}
	return &pluginv1.StopResponse{Proof: proof}, nil
}

// end asks, kills, and says how it knows that nothing runs.
func (d *Driver) end(ctx context.Context, in *instance, b *box, grace time.Duration) (*pluginv1.Proof, error) {
	h := b.handle()
	if !b.running() {
		return d.prove(ctx, b, h)
	}
	if b.state.Paused {
		// Whatever is frozen gets its signal first: nothing of it runs when the
		// engine thaws the container to let it die.
		if err := h.Groups.Signal(); err != nil {
			d.log.Warn("cannot kill a frozen cell by its control group", "cell", b.CellID, "error", err)
		}
	} else if grace > 0 {
		in.ask(ctx, b, grace)
	}
	if err := d.kill(ctx, in, b, h); err != nil {
		return nil, err
	}
	now, err := in.inspect(ctx, b.CellID)
	switch {
	case isNotFound(err): // destroyed meanwhile
		return d.prove(ctx, b, h)
	case err != nil:
		return d.proveByKernel(ctx, b.id, h, err)
	case now.id != b.id:
		return d.prove(ctx, b, h)
	case now.running():
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN,
			"the engine still says that the container runs, after it was killed: "+string(now.state.Status)), nil
	}
	return d.prove(ctx, now, h)
}

// ask lets the agent end its sessions by itself.
func (in *instance) ask(ctx context.Context, b *box, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if _, err := in.engine.client().ContainerKill(ctx, b.id, client.ContainerKillOptions{Signal: "SIGTERM"}); err == nil {
		_ = in.awaitExit(ctx, b.id) // what does not go is killed
	}
}

// kill has the engine kill the container's init, which takes everything in its
// pid namespace along. An engine that does not answer is not waited for long.
func (d *Driver) kill(ctx context.Context, in *instance, b *box, h handle) error {
	quick, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := in.engine.client().ContainerKill(quick, b.id, client.ContainerKillOptions{Signal: "SIGKILL"})
	if err == nil || cerrdefs.IsConflict(err) || cerrdefs.IsNotFound(err) { // it has ended by itself
		err = in.awaitExit(quick, b.id)
	}
	if err == nil || cerrdefs.IsNotFound(err) {
		return nil
	}
	d.log.Warn("the engine does not kill a cell; it is killed without the engine", "cell", b.CellID, "error", err)
	if e := h.kill(ctx); e != nil {
		return errors.Join(in.engine.fault("kill cell "+b.CellID, err), e)
	}
	// The engine writes the end down when it can.
	_ = in.awaitExit(quick, b.id)
	return nil
}

func (in *instance) awaitExit(ctx context.Context, id string) error {
	w := in.engine.client().ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-w.Result:
		return nil
	case err := <-w.Error:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends a container without its engine.
func (h handle) kill(ctx context.Context) error {
	if err := h.Groups.Kill(ctx); err != nil {
		return fmt.Errorf("kill by control group: %w", err)
	}
	if err := h.Init.Kill(); err != nil && !errors.Is(err, kernel.ErrGone) {
		return err
	}
	return h.Init.Wait(ctx)
}

// prove looks at the kernel after the engine has said that a container ended.
func (d *Driver) prove(ctx context.Context, b *box, h handle) (*pluginv1.Proof, error) {
	seen := []string{fmt.Sprintf("the engine says that container %.12s is %s", b.id, ended(b))}
	boot, err := kernel.BootID()
	if err != nil {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, err.Error()), nil
	}
	if b.Boot != boot {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED,
			seen[0]+"; the machine was started anew since it was made"), nil
	}
	groups := h.Groups
	if len(groups) == 0 {
		found, ok := kernel.Find(b.id)
		if !ok {
			return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, seen[0]+"; this driver sees no control groups to check it by"), nil
		}
		groups = found
	}
	wait, cancel := context.WithTimeout(ctx, emptyTime)
	defer cancel()
	if err := groups.Empty(wait); err != nil {
		// Not what a container does; then the kernel ends it.
		if err := groups.Kill(ctx); err != nil {
			return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, seen[0]+"; but its control group is not empty: "+err.Error()), nil
		}
		seen = append(seen, "what was left in its control group was killed")
	}
	if h.Init.PID != 0 {
		if err := h.Init.Wait(wait); err != nil {
			return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, fmt.Sprintf("%s; but its init, pid %d, lives", seen[0], h.Init.PID)), nil
		}
		seen = append(seen, fmt.Sprintf("its init, pid %d, is gone", h.Init.PID))
	}
	return d.proof(pluginv1.ProofMethod_PROOF_METHOD_ENGINE_EXITED,
		strings.Join(append(seen, "its control group is empty or gone"), "; ")), nil
}

func ended(b *box) string {
	if b.running() { // seen so before it was removed
		return "gone"
	}
	return string(b.state.Status)
}

// stopWithout ends a cell whose engine does not answer, from what the ref says.
func (d *Driver) stopWithout(ctx context.Context, in *instance, ref *pluginv1.CellRef, why error) (*pluginv1.StopResponse, error) {
	switch status.Code(why) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
	default:
		return nil, why
	}
	h, err := readHandle(ref)
	if err != nil || h == nil || h.Init.PID == 0 {
		return nil, why
	}
	d.log.Warn("the engine is away; a cell is killed without it", "cell", h.CellID, "error", why)
	if err := h.kill(ctx); err != nil {
		return nil, plugin.Unavailable("%v; and without the engine: %v", why, err)
	}
	proof, err := d.proveByKernel(ctx, h.Container, *h, why)
	if err != nil {
		return nil, err
	}
	return &pluginv1.StopResponse{Proof: proof}, nil
}

// proveByKernel is the proof where the engine says nothing.
func (d *Driver) proveByKernel(ctx context.Context, id string, h handle, why error) (*pluginv1.Proof, error) {
	silent := fmt.Sprintf("the engine does not answer for container %.12s (%v)", id, why)
	if h.Init.PID == 0 {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, silent+"; its init is not known"), nil
	}
	if err := h.Init.Wait(ctx); err != nil {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, fmt.Sprintf("%s; its init, pid %d, lives", silent, h.Init.PID)), nil
	}
	detail := fmt.Sprintf("%s; the init of its pid namespace, pid %d, was killed and is gone, and everything in it with it", silent, h.Init.PID)
	if len(h.Groups) == 0 {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_PID_NAMESPACE_GONE, detail), nil
	}
	if err := h.Groups.Empty(ctx); err != nil {
		return d.proof(pluginv1.ProofMethod_PROOF_METHOD_UNPROVEN, silent+"; its control group is not empty"), nil
	}
	return d.proof(pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY, detail+"; its control group is empty"), nil
}

func (d *Driver) proof(m pluginv1.ProofMethod, detail string) *pluginv1.Proof {
	return &pluginv1.Proof{Method: m, Detail: detail, At: timestamppb.New(d.now())}
}
