package fake

import (
	"context"
	"os"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/isolation/local"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Plain is a driver whose cells are real: each is a cell agent as an ordinary
// process of the machine. It isolates nothing, and passes the conformance kit.
type Plain struct {
	base
	local.Cells
}

var _ isolation.Driver = (*Plain)(nil)

// NewPlain is a plain driver without faults.
func NewPlain() *Plain {
	d := &Plain{base: newBase("isolation", "A driver for tests: its cells are ordinary processes.",
		[]string{"isolation:plain"}, []string{isolation.FeaturePause})}
	d.Cells.Plan = plainPlan
	return d
}

func plainPlan(_ context.Context, p *local.Place) (*local.Plan, error) {
	spec := p.Spec
	if mode := spec.GetNetwork().GetMode(); mode != pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		return nil, plugin.FailedPrecondition("an ordinary process has the machine's network")
	}
	facts := &pluginv1.CellFacts{
		Root: "the machine's own files", Network: spec.GetNetwork().GetMode(), Uid: spec.GetUid(), Gid: spec.GetGid(),
		Link: pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED, Confinement: []string{"none"},
	}
	if me := uint32(os.Geteuid()); me != 0 {
		if spec.GetUid() != 0 && spec.GetUid() != me {
			return nil, plugin.FailedPrecondition("uid %d cannot be given by uid %d", spec.GetUid(), me)
		}
		facts.Uid, facts.Gid = me, uint32(os.Getegid())
	} else if facts.GetUid() != 0 {
		facts.Link = pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED
	}
	for _, v := range spec.GetVolumes() {
		if v.GetReadOnly() {
			return nil, plugin.FailedPrecondition("volume %s cannot be read-only for an ordinary process", v.GetVolumeId())
		}
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE {
			facts.Workspace = v.GetHostPath()
		} else {
			facts.State = v.GetHostPath()
		}
	}
	return &local.Plan{
		Argv: []string{spec.GetAgentBinary(), "serve", "--link-dir", spec.GetLinkDir(),
			"--secret-fd", local.SecretFD, "--public-dir", p.PublicDir},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, Facts: facts,
		Proof: pluginv1.ProofMethod_PROOF_METHOD_SUBREAPER_SWEEP,
	}, nil
}

// Configure opens the records too.
func (d *Plain) Configure(ctx context.Context, req *pluginv1.ConfigureRequest) error {
	if err := d.base.Configure(ctx, req); err != nil {
		return err
	}
	return d.Open(req.GetStateDir(), req.GetHostId())
}
