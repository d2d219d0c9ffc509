package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func startChecks() []isolationCheck {
	return []isolationCheck{
		{"start-ok", "", startOK},
		{"start-idempotent-same-generation", "", startIdempotent},
		{"start-conflict-other-generation", "", startConflict},
		{"start-fails-clean", "", startFailsClean},
		{"start-respects-deadline", "", startDeadline},
		{"concurrent-50", "", concurrent},
		{"path-traversal-ids", "", traversal},
		{"user-mapping", "", userMapping},
		{"no-new-privs", "", noNewPrivs},
		{"mounts", "", mounts},
		{"mounts-ro", "", mountsReadOnly},
		{"network-none", "", networkNone},
		{"secrets-not-in-handle", "", secretsNotInHandle},
	}
}

func startOK(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	f := p.cell.GetFacts()
	switch {
	case p.cell.GetRef().GetCellId() != p.spec.GetCellId() || p.cell.GetRef().GetIncarnation() != 1:
		return fmt.Errorf("the ref is %v", p.cell.GetRef())
	case len(p.cell.GetRef().GetDriverState()) > 4<<10:
		return fmt.Errorf("driver_state has %d bytes", len(p.cell.GetRef().GetDriverState()))
	case p.cell.GetStartedAt() == nil:
		return errors.New("started_at is missing")
	case f.GetOs() == "" || f.GetArch() == "" || f.GetRoot() == "":
		return fmt.Errorf("os, arch or root is missing in the facts: %v", f)
	case f.GetLink() == pluginv1.LinkProtection_LINK_PROTECTION_UNSPECIFIED:
		return errors.New("facts.link is unspecified")
	case f.GetNetwork() != k.opts.Network:
		return fmt.Errorf("facts.network is %v", f.GetNetwork())
	case f.GetWorkspace() == "":
		return errors.New("facts.workspace is missing")
	case len(f.GetConfinement()) == 0:
		return errors.New("facts.confinement is empty")
	}
	for _, name := range []string{"cpu", "memory", "pids", "disk"} {
		how := f.GetLimits()[name]
		if !strings.HasPrefix(how, "enforced-by:") && !strings.HasPrefix(how, "not-enforced:") {
			return fmt.Errorf("facts.limits[%s] is %q", name, how)
		}
	}
	out, err := p.sh(ctx, "echo hello; pwd")
	if err == nil && out != "hello\n"+f.GetWorkspace()+"\n" {
		err = fmt.Errorf("the first session said %q", out)
	}
	return err
}

func startIdempotent(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	again, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: p.spec})
	if err != nil {
		return fmt.Errorf("create again: %w", err)
	}
	if !proto.Equal(again.GetCell(), p.cell) {
		return fmt.Errorf("create again answers another cell: %v instead of %v", again.GetCell(), p.cell)
	}
	_, err = p.sh(ctx, "true")
	return err
}

func startConflict(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	other := proto.CloneOf(p.spec)
	other.Incarnation = 2
	_, err = k.client.Create(ctx, &pluginv1.CreateRequest{Spec: other})
	if err := want(err, "create with another incarnation", codes.FailedPrecondition); err != nil {
		return err
	}
	_, err = p.sh(ctx, "true")
	return err
}

func startFailsClean(ctx context.Context, k *kit) error {
	for what, change := range map[string]func(*pluginv1.CellSpec) error{
		"a wrong checksum": func(s *pluginv1.CellSpec) error {
			s.AgentSha256 = strings.Repeat("0", 64)
			return nil
		},
		"an agent that is missing": func(s *pluginv1.CellSpec) error {
			s.AgentBinary += ".missing"
			return nil
		},
		"an agent that is no program": func(s *pluginv1.CellSpec) error {
			text := []byte("no program\n")
			sum := sha256.Sum256(text)
			s.AgentBinary, s.AgentSha256 = filepath.Join(k.opts.Dir, s.GetCellId()+"-agent"), hex.EncodeToString(sum[:])
			return os.WriteFile(s.GetAgentBinary(), text, 0o755)
		},
		"a volume that is missing": func(s *pluginv1.CellSpec) error {
			s.Volumes = append(s.GetVolumes(), &pluginv1.Volume{VolumeId: "x", Kind: pluginv1.VolumeKind_VOLUME_KIND_STATE,
				HostPath: filepath.Join(k.opts.Dir, "missing"), Target: "/x"})
			return nil
		},
	} {
		s, err := k.spec()
		if err != nil {
			return err
		}
		if err := change(s); err != nil {
			return err
		}
		if _, err := k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s}); err == nil {
			return fmt.Errorf("create with %s succeeds", what)
		} else if err := want(err, "create with "+what, codes.FailedPrecondition, codes.InvalidArgument, codes.Unavailable, codes.NotFound); err != nil {
			return err
		}
		cells, err := k.list(ctx)
		if err != nil {
			return err
		}
		if cells[s.GetCellId()] != nil {
			return fmt.Errorf("after a create that failed for %s, list shows %v", what, cells[s.GetCellId()])
		}
	}
	return nil
}

// startDeadline gives starts less time than they need, at several points.
func startDeadline(ctx context.Context, k *kit) error {
	for _, d := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond} {
		s, err := k.spec()
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, d)
		_, err = k.client.Create(short, &pluginv1.CreateRequest{Spec: s})
		cancel()
		if err == nil {
			continue // it was fast enough
		}
		if err := want(err, "create with a short deadline", codes.DeadlineExceeded, codes.Canceled); err != nil {
			return err
		}
		var cells map[string]*pluginv1.ListResponse
		err = until(ctx, "a start that ran out of time to be gone from list", func() bool {
			if cells, err = k.list(ctx); err != nil {
				return true
			}
			return cells[s.GetCellId()] == nil
		})
		if err == nil {
			err = rest(ctx, quiet) // and it does not come back
		}
		if err != nil {
			return err
		}
		if cells, err = k.list(ctx); err != nil {
			return err
		}
		if got := cells[s.GetCellId()]; got != nil {
			return fmt.Errorf("a create that ran out of time goes on: list shows %v", got)
		}
	}
	return nil
}

// atOnce is how many cells are made at the same time.
func (k *kit) atOnce() int {
	if k.opts.AtOnce == 0 {
		return 50
	}
	k.note = fmt.Sprintf("%d cells at once, not 50: the caller has set this", k.opts.AtOnce)
	return k.opts.AtOnce
}

func concurrent(ctx context.Context, k *kit) error {
	n := k.atOnce()
	places := make([]*place, n)
	group, gctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() (err error) {
			places[i], err = k.create(gctx, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, p := range places {
		out, err := p.sh(ctx, fmt.Sprintf("echo %d", i))
		if err != nil {
			return err
		}
		if out != fmt.Sprintf("%d\n", i) {
			return fmt.Errorf("cell %d said %q", i, out)
		}
	}
	// The same cell from many callers is one cell.
	s, err := k.spec()
	if err != nil {
		return err
	}
	cells := make([]*pluginv1.Cell, 10)
	group, gctx = errgroup.WithContext(ctx)
	for i := range cells {
		group.Go(func() error {
			r, err := k.client.Create(gctx, &pluginv1.CreateRequest{Spec: s})
			cells[i] = r.GetCell()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("the same create at once: %w", err)
	}
	for _, c := range cells {
		if !proto.Equal(c, cells[0]) {
			return fmt.Errorf("the same create at once answers %v and %v", cells[0], c)
		}
	}
	return nil
}

func traversal(ctx context.Context, k *kit) error {
	for _, id := range []string{"", "..", "../x", "a/b", "/", "A", "a.b", "a b", "é", strings.Repeat("a", 65)} {
		s, err := k.spec()
		if err != nil {
			return err
		}
		s.CellId = id
		ref := &pluginv1.CellRef{CellId: id, Incarnation: 1}
		_, err = k.client.Create(ctx, &pluginv1.CreateRequest{Spec: s})
		if err := want(err, fmt.Sprintf("create of cell %q", id), codes.InvalidArgument); err != nil {
			return err
		}
		_, err = k.client.Destroy(ctx, &pluginv1.DestroyRequest{Ref: ref, Force: true})
		if err := want(err, fmt.Sprintf("destroy of cell %q", id), codes.InvalidArgument); err != nil {
			return err
		}
		_, err = k.client.Inspect(ctx, &pluginv1.InspectRequest{Ref: ref})
		if err := want(err, fmt.Sprintf("inspect of cell %q", id), codes.InvalidArgument); err != nil {
			return err
		}
	}
	return nil
}

func userMapping(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	f := p.cell.GetFacts()
	if k.opts.UID != 0 && f.GetUid() != k.opts.UID {
		return fmt.Errorf("facts.uid is %d, not %d", f.GetUid(), k.opts.UID)
	}
	out, err := p.sh(ctx, "id -u; id -g")
	if err == nil && out != fmt.Sprintf("%d\n%d\n", f.GetUid(), f.GetGid()) {
		err = fmt.Errorf("the workload has uid and gid %q, the facts say %d and %d", out, f.GetUid(), f.GetGid())
	}
	return err
}

func noNewPrivs(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	out, err := p.sh(ctx, "grep -E '^(NoNewPrivs|CapEff)' /proc/self/status")
	if err != nil {
		return err
	}
	for _, line := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000"} {
		if !strings.Contains(out, line) {
			return fmt.Errorf("the workload's status says %q, without %q", out, line)
		}
	}
	return nil
}

func mounts(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.work, "from-host"), []byte("host"), 0o644); err != nil {
		return err
	}
	out, err := p.sh(ctx, "cat from-host && echo cell > from-cell && mkdir d && mv from-cell d/")
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(p.work, "d", "from-cell"))
	if err != nil {
		return fmt.Errorf("the workspace is not shared: %w", err)
	}
	if string(b) != "cell\n" || out != "host" {
		return fmt.Errorf("the workspace is not shared: the cell read %q, the host %q", out, b)
	}
	return nil
}

func mountsReadOnly(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.GetVolumes()[0].ReadOnly = true })
	if status.Code(err) == codes.FailedPrecondition {
		return notDeclared("the driver refuses a read-only volume: %v", err)
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.work, "old"), []byte("old"), 0o666); err != nil {
		return err
	}
	out, err := p.sh(ctx, "(echo new > old) 2>/dev/null; (echo new > file) 2>/dev/null; mkdir d 2>/dev/null; rm -f old 2>/dev/null; cat old")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(p.work)
	if err == nil && (len(entries) != 1 || out != "old") {
		err = fmt.Errorf("a read-only volume was written to: %v, %q", entries, out)
	}
	return err
}

// networkNone looks at what the kernel shows inside: no interface but the
// loopback, and it is up.
func networkNone(ctx context.Context, k *kit) error {
	for _, mode := range []pluginv1.NetworkMode{pluginv1.NetworkMode_NETWORK_MODE_NONE, pluginv1.NetworkMode_NETWORK_MODE_GATEWAY} {
		p, err := k.create(ctx, func(s *pluginv1.CellSpec) { s.Network.Mode = mode })
		if status.Code(err) == codes.FailedPrecondition {
			return notDeclared("the driver refuses %v: %v", mode, err)
		}
		if err != nil {
			return err
		}
		if got := p.cell.GetFacts().GetNetwork(); got != mode {
			return fmt.Errorf("facts.network is %v, not %v", got, mode)
		}
		out, err := p.sh(ctx, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; grep -c . /proc/net/fib_trie")
		if err != nil {
			return err
		}
		lines := strings.Fields(out)
		if len(lines) != 2 || lines[0] != "lo" || lines[1] == "0" {
			return fmt.Errorf("with %v the cell's interfaces and addresses are %q", mode, out)
		}
	}
	return nil
}

func secretsNotInHandle(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	secret := p.spec.GetLinkSecret()
	all, err := proto.Marshal(p.cell)
	if err != nil {
		return err
	}
	for form, b := range map[string][]byte{
		"raw": secret, "hex": []byte(hex.EncodeToString(secret)), "base64": []byte(base64.StdEncoding.EncodeToString(secret)),
	} {
		if bytes.Contains(all, b) {
			return fmt.Errorf("the answer of create holds the link secret (%s)", form)
		}
	}
	entries, err := os.ReadDir(p.spec.GetLinkDir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "link.sock" {
			return fmt.Errorf("%s lies in the link directory beside the socket", e.Name())
		}
	}
	return nil
}
