package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// specChecks are more of Create: what of a spec is refused, and what a start
// that is given up leaves.
func specChecks() []isolationCheck {
	return []isolationCheck{
		{"cancel-mid-start", "", cancelStart},
		{"start-ended-refused", "", startEnded},
		{"unknown-enum-refused", "", unknownEnum},
		{"spec-incomplete-refused", "", incompleteSpec},
		{"unicode-labels", "", unicodeLabels},
		{"max-message", "", maxMessage},
		{"volume-state", "", stateVolume},
		{"network-open", "", networkOpen},
	}
}

// cancelStart takes the call back at several points; the cell must be gone, or
// be the one that a second call finds.
func cancelStart(ctx context.Context, k *kit) error {
	for _, d := range []time.Duration{0, 2 * time.Millisecond, 5 * time.Millisecond, 15 * time.Millisecond} {
		s, err := k.spec()
		if err != nil {
			return err
		}
		short, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(d, cancel)
		_, err = k.client.Create(short, &pluginv1.CreateRequest{Spec: s})
		timer.Stop()
		cancel()
		if err != nil {
			if err := want(err, "create that is taken back", codes.Canceled); err != nil {
				return err
			}
		}
		again, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s})
		if err != nil {
			return fmt.Errorf("create after one that was taken back: %w", err)
		}
		p := &place{kit: k, spec: s, cell: again.GetCell(), work: s.GetVolumes()[0].GetHostPath()}
		if err := p.dial(ctx); err != nil {
			return fmt.Errorf("the cell of a create after one that was taken back: %w", err)
		}
		if _, err := p.sh(ctx, "true"); err != nil {
			return err
		}
	}
	return nil
}

// startEnded: a cell that has ended is not started again under the same name.
func startEnded(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	_, err = k.client.Create(ctx, &pluginv1.CreateRequest{Spec: p.spec})
	return want(err, "create of a cell that has ended", codes.FailedPrecondition, codes.AlreadyExists)
}

// refused checks that a changed spec is refused with InvalidArgument and
// leaves nothing.
func (k *kit) refused(ctx context.Context, what string, change func(*pluginv1.CellSpec)) error {
	s, err := k.spec()
	if err != nil {
		return err
	}
	id := s.GetCellId()
	change(s)
	_, err = k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s})
	if err := want(err, "create with "+what, codes.InvalidArgument); err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err == nil && cells[id] != nil {
		err = fmt.Errorf("after a create that was refused for %s, list shows %v", what, cells[id])
	}
	return err
}

func unknownEnum(ctx context.Context, k *kit) error {
	for what, change := range map[string]func(*pluginv1.CellSpec){
		"an unspecified network mode": func(s *pluginv1.CellSpec) { s.Network.Mode = 0 },
		"an unknown network mode":     func(s *pluginv1.CellSpec) { s.Network.Mode = 99 },
		"no network":                  func(s *pluginv1.CellSpec) { s.Network = nil },
		"an unspecified volume kind":  func(s *pluginv1.CellSpec) { s.GetVolumes()[0].Kind = 0 },
		"an unknown volume kind":      func(s *pluginv1.CellSpec) { s.GetVolumes()[0].Kind = 99 },
	} {
		if err := k.refused(ctx, what, change); err != nil {
			return err
		}
	}
	return nil
}

func incompleteSpec(ctx context.Context, k *kit) error {
	for what, change := range map[string]func(*pluginv1.CellSpec){
		"incarnation 0":             func(s *pluginv1.CellSpec) { s.Incarnation = 0 },
		"no agent":                  func(s *pluginv1.CellSpec) { s.AgentBinary = "" },
		"an agent of relative path": func(s *pluginv1.CellSpec) { s.AgentBinary = "airlock-cell" },
		"no checksum":               func(s *pluginv1.CellSpec) { s.AgentSha256 = "" },
		"no link directory":         func(s *pluginv1.CellSpec) { s.LinkDir = "" },
		"no link secret":            func(s *pluginv1.CellSpec) { s.LinkSecret = nil },
	} {
		// The kit cleans up by the spec that it made.
		kept := func(s *pluginv1.CellSpec) {
			k.mu.Lock()
			k.made[len(k.made)-1] = proto.CloneOf(s)
			k.mu.Unlock()
			change(s)
		}
		if err := k.refused(ctx, what, kept); err != nil {
			return err
		}
	}
	return nil
}

// unicodeLabels: labels are for people and may hold anything.
func unicodeLabels(ctx context.Context, k *kit) error {
	labels := map[string]string{"mission": "a/../b", "名前": "日本語 – żółć 🚀", "long": strings.Repeat("𝔘", 300), "empty": ""}
	p, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.Labels = labels })
	if err != nil {
		return err
	}
	cells, err := k.list(ctx)
	if err != nil {
		return err
	}
	got := cells[p.spec.GetCellId()].GetLabels()
	for name, v := range labels {
		if got[name] != v {
			return fmt.Errorf("list shows the label %q as %q, not %q", name, got[name], v)
		}
	}
	return nil
}

// maxMessage sends a spec larger than gRPC takes by default, smaller than the contract does; the driver may refuse
// it, and must not be hurt by it.
func maxMessage(ctx context.Context, k *kit) error {
	s, err := k.spec()
	if err != nil {
		return err
	}
	s.Labels = map[string]string{"big": strings.Repeat("x", 4<<20)}
	if _, err = k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s}); err != nil {
		if err := want(err, "create with a label of 4 MiB", codes.InvalidArgument, codes.ResourceExhausted, codes.FailedPrecondition, codes.Unavailable); err != nil {
			return err
		}
	}
	if err := k.clean(ctx); err != nil {
		return err
	}
	p, err := k.create(ctx, nil)
	if err != nil {
		return fmt.Errorf("after a message of 4 MiB: %w", err)
	}
	_, err = p.sh(ctx, "true")
	return err
}

// stateVolume attaches a second volume, which outlives the cell.
func stateVolume(ctx context.Context, k *kit) error {
	var dir string
	p, err := k.create(ctx, func(s *pluginv1.CellSpec) {
		dir = s.GetVolumes()[0].GetHostPath() + "/state"
		s.Volumes = append(s.GetVolumes(), &pluginv1.Volume{
			VolumeId: s.GetCellId() + "-s", Kind: pluginv1.VolumeKind_VOLUME_KIND_STATE, HostPath: dir, Target: "/airlock-state",
		})
		_ = errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) // else create says so
		if o := k.opts.Owner; o != 0 {
			_ = os.Chown(dir, o, o)
		}
	})
	if status.Code(err) == codes.FailedPrecondition {
		return notDeclared("the driver refuses a second volume: %v", err)
	}
	if err != nil {
		return err
	}
	// A cell without a root of its own has it at its path on the host.
	if _, err := p.sh(ctx, "cd /airlock-state 2>/dev/null || cd '"+dir+"'; echo kept > here"); err != nil {
		return err
	}
	if _, err := p.stop(ctx, 0); err != nil {
		return err
	}
	if _, err := k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: p.cell.GetRef()}); err != nil {
		return fmt.Errorf("destroy: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "here"))
	if err != nil || string(b) != "kept\n" {
		return fmt.Errorf("what a cell wrote to its state volume is %q after its end (%v)", b, fmt.Sprint(err))
	}
	return nil
}

func networkOpen(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.Network.Mode = pluginv1.NetworkMode_NETWORK_MODE_OPEN })
	if status.Code(err) == codes.FailedPrecondition {
		return notDeclared("the driver refuses an open network: %v", err)
	}
	if err != nil {
		return err
	}
	if got := p.cell.GetFacts().GetNetwork(); got != pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		return fmt.Errorf("facts.network is %v for an open network", got)
	}
	_, err = p.sh(ctx, "true")
	return err
}
