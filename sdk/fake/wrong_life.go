package fake

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// wrongLives are what can be wrong with a cell after it was made.
func wrongLives(one func(name, check string, change func(*wrong)) Wrong) []Wrong {
	return []Wrong{
		one("pause does nothing", "pause-resume", func(w *wrong) {
			w.pause = func(context.Context, *pluginv1.PauseRequest) (*pluginv1.PauseResponse, error) {
				return &pluginv1.PauseResponse{}, nil
			}
		}),
		one("resume does nothing", "pause-resume", func(w *wrong) {
			w.resume = func(context.Context, *pluginv1.ResumeRequest) (*pluginv1.ResumeResponse, error) {
				return &pluginv1.ResumeResponse{}, nil
			}
		}),
		one("stop lies", "stop-escalates-to-kill", func(w *wrong) {
			w.stop = func(context.Context, *pluginv1.StopRequest) (*pluginv1.StopResponse, error) { return wrongProof(), nil }
		}),
		one("stop leaves what has left its session", "stop-kills-grandchildren", leaveSetsid),
		one("stop does not ask first", "stop-graceful", func(w *wrong) {
			w.stop = func(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
				return w.Plain.Stop(ctx, &pluginv1.StopRequest{Ref: r.GetRef(), Grace: durationpb.New(0)})
			}
		}),
		one("stop of an unknown cell succeeds", "stop-unknown-id", func(w *wrong) {
			w.stop = func(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
				reply, err := w.Plain.Stop(ctx, r)
				if status.Code(err) == codes.NotFound {
					return wrongProof(), nil
				}
				return reply, err
			}
		}),
		one("a proof proves nothing", "stop-proof-fields-present", func(w *wrong) {
			w.stop = func(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
				_, err := w.Plain.Stop(ctx, r)
				return &pluginv1.StopResponse{Proof: &pluginv1.Proof{}}, err
			}
		}),
		one("destroy of a running cell is not refused", "destroy-running-refused", func(w *wrong) {
			w.destroy = func(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
				return w.Plain.Destroy(ctx, &pluginv1.DestroyRequest{Ref: r.GetRef(), Force: true})
			}
		}),
		one("destroy of an unknown cell fails", "destroy-unknown", func(w *wrong) {
			w.destroy = func(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
				if _, err := w.Plain.Inspect(ctx, &pluginv1.InspectRequest{Ref: r.GetRef()}); err != nil && r.GetRef().GetIncarnation() > 0 {
					return nil, err
				}
				return w.Plain.Destroy(ctx, r)
			}
		}),
		one("destroy takes the next incarnation along", "destroy-idempotent", func(w *wrong) {
			w.destroy = func(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
				return w.Plain.Destroy(ctx, &pluginv1.DestroyRequest{Ref: &pluginv1.CellRef{CellId: r.GetRef().GetCellId()}, Force: r.GetForce()})
			}
		}),
		one("inspect says running of whatever there is", "inspect-consistent", func(w *wrong) {
			w.inspect = func(ctx context.Context, r *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
				reply, err := w.Plain.Inspect(ctx, r)
				if err == nil {
					reply.Status.State = pluginv1.CellState_CELL_STATE_RUNNING
				}
				return reply, err
			}
		}),
		one("what is missing is Internal", "error-codes", func(w *wrong) {
			w.inspect = func(ctx context.Context, r *pluginv1.InspectRequest) (*pluginv1.InspectResponse, error) {
				reply, err := w.Plain.Inspect(ctx, r)
				return reply, as(codes.Internal, err)
			}
		}),
		one("recover accepts the handle of another cell", "recover-foreign-handle-rejected", func(w *wrong) {
			w.recover = func(ctx context.Context, r *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
				r = proto.CloneOf(r)
				r.Ref.DriverState = nil
				return w.Plain.Recover(ctx, r)
			}
		}),
		one("recover says running of what has ended", "recover-exited-while-away", func(w *wrong) {
			w.recover = func(ctx context.Context, r *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
				reply, err := w.Plain.Recover(ctx, r)
				if err == nil {
					reply.Status = &pluginv1.CellStatus{State: pluginv1.CellState_CELL_STATE_RUNNING}
				}
				return reply, err
			}
		}),
		one("recover knows the cells of its own process only", "recover-after-plugin-kill", forgetful),
		one("list misses the cells of another process", "list-after-plugin-kill", forgetful),
		one("list shows the cells of another host", "list-complete", foreignList),
		one("stats does not end with the cell", "stats", endlessStats),
		one("CPU time is in picoseconds", "stats", func(w *wrong) {
			w.stats = func(r *pluginv1.StatsRequest, s grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
				return w.Plain.Stats(r, thousandfold{s})
			}
		}),
	}
}

// leaveSetsid kills the agent, and below it only what is still in the session
// that it was started in.
func leaveSetsid(w *wrong) {
	var mu sync.Mutex
	var left []int
	w.stop = func(ctx context.Context, r *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
		found, err := w.Plain.Recover(ctx, &pluginv1.RecoverRequest{Ref: r.GetRef()})
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		agent, below := underneath(filepath.Dir(found.GetCell().GetLink()))
		if agent == 0 {
			return nil, plugin.NotFound("no agent")
		}
		_ = unix.Kill(agent, unix.SIGSTOP)
		// The sessions that the agent itself has started.
		first := map[int]int{}
		for _, pid := range below {
			if parentOf(pid) == agent && hasChildren(pid) {
				first[pid] = pid
			}
		}
		for _, pid := range below {
			if sid, _ := unix.Getsid(pid); sid != first[sid] {
				left = append(left, pid)
				continue
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_ = unix.Kill(agent, unix.SIGKILL)
		return wrongProof(), nil
	}
	w.destroy = func(ctx context.Context, r *pluginv1.DestroyRequest) (*pluginv1.DestroyResponse, error) {
		mu.Lock()
		for _, pid := range left {
			_ = unix.Kill(-pid, unix.SIGKILL) // its whole group, or the test would leave it
		}
		left = nil
		mu.Unlock()
		return w.Plain.Destroy(ctx, r)
	}
}

// underneath finds the agent by its link directory, and everything below it.
func underneath(linkDir string) (agent int, below []int) {
	parents := map[int]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		b, _ := os.ReadFile(filepath.Join(dir, "stat"))
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
		if line, _ := os.ReadFile(filepath.Join(dir, "cmdline")); strings.Contains(string(line), "\x00"+linkDir+"\x00") {
			agent = pid
		}
	}
	for pid := range parents {
		for up := parents[pid]; up > 1; up = parents[up] {
			if up == agent {
				below = append(below, pid)
				break
			}
		}
	}
	return agent, below
}

// hasChildren tells a session's own shell, which has started the others, from
// an orphan that the agent has taken in.
func hasChildren(pid int) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	return len(strings.Fields(string(b))) > 1
}

func parentOf(pid int) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	up, _ := strconv.Atoi(f[1])
	return up
}

// forgetful knows what it has made itself.
func forgetful(w *wrong) {
	var mu sync.Mutex
	mine := map[string]bool{}
	knows := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		return mine[id]
	}
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		mu.Lock()
		mine[r.GetSpec().GetCellId()] = true
		mu.Unlock()
		return w.Plain.Create(ctx, r)
	}
	w.recover = func(ctx context.Context, r *pluginv1.RecoverRequest) (*pluginv1.RecoverResponse, error) {
		if !knows(r.GetRef().GetCellId()) {
			return nil, plugin.NotFound("no cell %s", r.GetRef().GetCellId())
		}
		return w.Plain.Recover(ctx, r)
	}
	w.list = func(r *pluginv1.ListRequest, s grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
		return w.Plain.List(r, only{s, knows})
	}
}

type only struct {
	grpc.ServerStreamingServer[pluginv1.ListResponse]
	knows func(string) bool
}

func (o only) Send(m *pluginv1.ListResponse) error {
	if !o.knows(m.GetRef().GetCellId()) {
		return nil
	}
	return o.ServerStreamingServer.Send(m)
}

// foreignList shows whatever it has made, for whichever host.
func foreignList(w *wrong) {
	var mu sync.Mutex
	hosts := map[string]bool{}
	w.create = func(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.CreateResponse, error) {
		mu.Lock()
		hosts[r.GetSpec().GetHostId()] = true
		mu.Unlock()
		return w.Plain.Create(ctx, r)
	}
	w.list = func(_ *pluginv1.ListRequest, s grpc.ServerStreamingServer[pluginv1.ListResponse]) error {
		mu.Lock()
		defer mu.Unlock()
		for host := range hosts {
			if err := w.Plain.List(&pluginv1.ListRequest{HostId: host}, s); err != nil {
				return err
			}
		}
		return nil
	}
}

func endlessStats(w *wrong) {
	w.stats = func(r *pluginv1.StatsRequest, s grpc.ServerStreamingServer[pluginv1.StatsResponse]) error {
		if err := w.Plain.Stats(r, s); err != nil {
			return err
		}
		for s.Context().Err() == nil {
			if err := s.Send(&pluginv1.StatsResponse{At: timestamppb.Now()}); err != nil {
				return err
			}
			time.Sleep(r.GetInterval().AsDuration())
		}
		return s.Context().Err()
	}
}

type thousandfold struct {
	grpc.ServerStreamingServer[pluginv1.StatsResponse]
}

func (t thousandfold) Send(m *pluginv1.StatsResponse) error {
	if m.CpuNs != nil {
		much := m.GetCpuNs() * 1000
		m.CpuNs = &much
	}
	return t.ServerStreamingServer.Send(m)
}
