package driver

import (
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"regexp"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

const secretSize = 32

// idPattern is what the contract allows.
var idPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

func checkID(id string) error {
	if !idPattern.MatchString(id) {
		return plugin.InvalidArgument("cell_id %q is not 1 to 64 characters of a-z, 0-9 and -", id)
	}
	return nil
}

// checkSpec refuses what can be refused before anything is made.
func checkSpec(s *pluginv1.CellSpec) error {
	if err := checkID(s.GetCellId()); err != nil {
		return err
	}
	sum, err := hex.DecodeString(s.GetAgentSha256())
	switch {
	case s.GetIncarnation() == 0:
		return plugin.InvalidArgument("incarnation is 0; it counts from 1")
	case !filepath.IsAbs(s.GetAgentBinary()):
		return plugin.InvalidArgument("agent_binary %q is not absolute", s.GetAgentBinary())
	case err != nil || len(sum) != 32:
		return plugin.InvalidArgument("agent_sha256 is not a SHA-256 in hex")
	case len(s.GetLinkSecret()) != secretSize:
		return plugin.InvalidArgument("link_secret has %d bytes instead of %d", len(s.GetLinkSecret()), secretSize)
	case s.GetResources().GetCpu() < 0:
		return plugin.InvalidArgument("resources.cpu is negative")
	case s.GetUid() == 0 && s.GetGid() != 0:
		return plugin.InvalidArgument("a gid without a uid")
	}
	switch s.GetNetwork().GetMode() {
	case pluginv1.NetworkMode_NETWORK_MODE_NONE, pluginv1.NetworkMode_NETWORK_MODE_GATEWAY,
		pluginv1.NetworkMode_NETWORK_MODE_OPEN:
	default:
		return plugin.InvalidArgument("network mode %d is not known", s.GetNetwork().GetMode())
	}
	if err := checkDir("link_dir", s.GetLinkDir()); err != nil {
		return err
	}
	targets := map[string]bool{}
	for _, v := range s.GetVolumes() {
		if v.GetKind() != pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE && v.GetKind() != pluginv1.VolumeKind_VOLUME_KIND_STATE {
			return plugin.InvalidArgument("volume %q has the unknown kind %d", v.GetVolumeId(), v.GetKind())
		}
		target := path.Clean(v.GetTarget())
		if !path.IsAbs(target) || reserved(target) || targets[target] {
			return plugin.InvalidArgument("volume %q has the unusable target %q", v.GetVolumeId(), v.GetTarget())
		}
		targets[target] = true
		if err := checkDir("volume "+v.GetVolumeId(), v.GetHostPath()); err != nil {
			return err
		}
	}
	return nil
}

func checkDir(what, dir string) error {
	if !filepath.IsAbs(dir) {
		return plugin.InvalidArgument("%s: %q is not absolute", what, dir)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return plugin.FailedPrecondition("%s: %v", what, err)
	}
	if !st.IsDir() {
		return plugin.FailedPrecondition("%s: %s is no directory", what, dir)
	}
	return nil
}
