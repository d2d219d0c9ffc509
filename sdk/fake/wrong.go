package fake

import (
	"context"
	"encoding/hex"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/isolation/local"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Wrong is a way in which a driver can be wrong.
type Wrong struct {
	// Name says what is wrong.
	Name string
	// Check is the check of the conformance kit that must see it.
	Check string
	// Driver is a Plain driver with that one thing wrong.
	Driver func() isolation.Driver
}

// wrong is a Plain driver, parts of which are replaced.
type wrong struct {
	*Plain

	create  func(context.Context, *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error)
	recover func(context.Context, *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error)
	pause   func(context.Context, *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error)
	resume  func(context.Context, *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error)
	stop    func(context.Context, *pluginv1.StopRequest) (*pluginv1.StopResponse, error)
	destroy func(context.Context, *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error)
	inspect func(context.Context, *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error)
	list    func(*pluginv1.ListRequest, grpc.ServerStreamingServer[pluginv1.ListResponse]) error
	stats   func(*pluginv1.StatsRequest, grpc.ServerStreamingServer[pluginv1.StatsResponse]) error
}

func (w *wrong) Create(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
	return pick(w.create, w.Plain.Create)(ctx, r)
}

func (w *wrong) Recover(ctx context.Context, r *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
	return pick(w.recover, w.Plain.Recover)(ctx, r)
}

func (w *wrong) Pause(ctx context.Context, r *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
	return pick(w.pause, w.Plain.Pause)(ctx, r)
}

func (w *wrong) Resume(ctx context.Context, r *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
	return pick(w.resume, w.Plain.Resume)(ctx, r)
}

func (w *wrong) Stop(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	return pick(w.stop, w.Plain.Stop)(ctx, r)
}

func (w *wrong) Destroy(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
	return pick(w.destroy, w.Plain.Destroy)(ctx, r)
}

func (w *wrong) Inspect(ctx context.Context, r *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
	return pick(w.inspect, w.Plain.Inspect)(ctx, r)
}

func (w *wrong) List(r *pluginv1.ListRequest, s grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
	if w.list != nil {
		return w.list(r, s)
	}
	return w.Plain.List(r, s)
}

func (w *wrong) Stats(r *pluginv1.StatsRequest, s grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
	if w.stats != nil {
		return w.stats(r, s)
	}
	return w.Plain.Stats(r, s)
}

type method[Q, A any] = func(context.Context, Q) (A, error)

func pick[Q, A any](replaced, good method[Q, A]) method[Q, A] {
	if replaced != nil {
		return replaced
	}
	return good
}

// WrongDrivers are drivers with one thing wrong each, for tests of the
// conformance kit.
func WrongDrivers() []Wrong {
	one := func(name, check string, change func(*wrong)) Wrong {
		return Wrong{name, check, func() isolation.Driver {
			w := &wrong{Plain: NewPlain()}
			change(w)
			return w
		}}
	}
	return append([]Wrong{
		one("create is not idempotent", "start-idempotent-same-generation", createAnew),
		one("another incarnation is accepted", "start-conflict-other-generation", anyIncarnation),
		one("a create that fails leaves residue", "start-fails-clean", residue),
		one("create ignores its deadline", "start-respects-deadline", ignoreDeadline),
		one("ids are not checked", "path-traversal-ids", uncheckedIDs),
		one("an unknown network mode counts as open", "unknown-enum-refused", anyNetwork),
		one("network none is the machine's", "network-none", falseNetwork),
		one("a read-only volume can be written to", "mounts-ro", falseReadOnly),
		one("labels are lost", "list-labels", noLabels),
		one("the handle holds the secret", "secrets-not-in-handle", secretHandle),
		one("the secret is on a command line", "secrets-not-in-environ-of-others", secretArgument),
		one("limits are declared and not enforced", "limits-pids", falseLimits),
		one("the link is called protected and is not", "link-protected", falseProtection),
		one("an empty request is a panic", "panic-safe", panics),
	}, wrongLives(one)...)
}

func createAnew(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		ref := &pluginv1.CellRef{CellId: r.GetSpec().GetCellId(), Incarnation: r.GetSpec().GetIncarnation()}
		_, _ = w.Plain.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: true})
		return w.Plain.Create(ctx, r)
	}
}

func anyIncarnation(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		reply, err := w.Plain.Create(ctx, r)
		if status.Code(err) == codes.FailedPrecondition && r.GetSpec().GetIncarnation() > 1 {
			again := proto.CloneOf(r)
			again.Spec.Incarnation = 1
			return w.Plain.Create(ctx, again)
		}
		return reply, err
	}
}

func residue(w *wrong) {
	var mu sync.Mutex
	var failed []*pluginv1.CellRef
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		reply, err := w.Plain.Create(ctx, r)
		if err != nil {
			mu.Lock()
			failed = append(failed, &pluginv1.CellRef{CellId: r.GetSpec().GetCellId(), Incarnation: 1})
			mu.Unlock()
		}
		return reply, err
	}
	w.list = func(r *pluginv1.ListRequest, s grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
		mu.Lock()
		defer mu.Unlock()
		for _, ref := range failed {
			if err := s.Send(&pluginv1.ListResponse{Ref: ref, State: pluginv1.CellState_CELL_STATE_EXITED}); err != nil {
				return err
			}
		}
		return w.Plain.List(r, s)
	}
}

func ignoreDeadline(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		return w.Plain.Create(context.WithoutCancel(ctx), r)
	}
}

func uncheckedIDs(w *wrong) {
	tame := func(id string) string { return "x" + hex.EncodeToString([]byte(id))[:min(40, 2*len(id))] }
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		r = proto.CloneOf(r)
		r.Spec.CellId = tame(r.GetSpec().GetCellId())
		return w.Plain.Create(ctx, r)
	}
	w.destroy = func(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
		r = proto.CloneOf(r)
		r.Ref.CellId = tame(r.GetRef().GetCellId())
		return w.Plain.Destroy(ctx, r)
	}
}

func anyNetwork(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		r = proto.CloneOf(r)
		r.Spec.Network = &pluginv1.Network{Mode: pluginv1.NetworkMode_NETWORK_MODE_OPEN}
		return w.Plain.Create(ctx, r)
	}
}

func falseNetwork(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		mode := r.GetSpec().GetNetwork().GetMode()
		r = proto.CloneOf(r)
		r.Spec.Network = &pluginv1.Network{Mode: pluginv1.NetworkMode_NETWORK_MODE_OPEN}
		reply, err := w.Plain.Create(ctx, r)
		if err == nil {
			reply.Cell.Facts.Network = mode
		}
		return reply, err
	}
}

func falseReadOnly(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		r = proto.CloneOf(r)
		for _, v := range r.GetSpec().GetVolumes() {
			v.ReadOnly = false
		}
		return w.Plain.Create(ctx, r)
	}
}

func noLabels(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		r = proto.CloneOf(r)
		r.Spec.Labels = nil
		return w.Plain.Create(ctx, r)
	}
}

func secretHandle(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		reply, err := w.Plain.Create(ctx, r)
		if err == nil {
			reply.Cell.Ref.DriverState = []byte(hex.EncodeToString(r.GetSpec().GetLinkSecret()))
		}
		return reply, err
	}
}

func secretArgument(w *wrong) {
	w.Cells.Plan = func(ctx context.Context, p *local.Place) (*local.Plan, error) {
		plan, err := plainPlan(ctx, p)
		if err == nil {
			secret := hex.EncodeToString(p.Spec.GetLinkSecret())
			plan.Argv = append([]string{"/bin/sh", "-c", `"$@"; exit $?`, secret}, plan.Argv...)
		}
		return plan, err
	}
}

func falseLimits(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		reply, err := w.Plain.Create(ctx, r)
		if err == nil {
			reply.Cell.Facts.Limits["pids"] = "enforced-by:hope"
		}
		return reply, err
	}
}

func falseProtection(w *wrong) {
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		reply, err := w.Plain.Create(ctx, r)
		if err == nil {
			_ = os.Chmod(r.GetSpec().GetLinkDir(), 0o755)
			reply.Cell.Facts.Link = pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED
		}
		return reply, err
	}
}

func panics(w *wrong) {
	w.stop = func(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
		if r.Ref.CellId == "" { // a nil ref is a panic
			return nil, plugin.InvalidArgument("no cell")
		}
		return w.Plain.Stop(ctx, r)
	}
}

// wrongProof is an answer of Stop to a cell that nobody has stopped.
func wrongProof() *pluginv1.StopResponse {
	return &pluginv1.StopResponse{Proof: &pluginv1.Proof{
		Method: pluginv1.ProofMethod_PROOF_METHOD_CGROUP_EMPTY, Detail: "trust me", At: timestamppb.New(time.Now()),
	}}
}

// as gives an error another code.
func as(code codes.Code, err error) error {
	if err == nil {
		return nil
	}
	return status.Error(code, status.Convert(err).Message())
}
