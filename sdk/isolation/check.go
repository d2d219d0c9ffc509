package isolation

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// SecretSize is the length of CellSpec.link_secret in bytes.
const SecretSize = 32

// CheckID refuses what is not a cell id: ids become names of files and
// directories, so nothing else may get further. InvalidArgument.
func CheckID(id string) error {
	if ok, _ := regexp.MatchString(`^[a-z0-9-]{1,64}$`, id); !ok {
		return plugin.InvalidArgument("cell_id %.80q is not 1 to 64 characters of a-z, 0-9 and -", id)
	}
	return nil
}

// CheckSpec refuses what every driver must refuse before it makes anything: a
// bad id, a missing incarnation, secret or checksum, an enum that is
// unspecified or unknown (all InvalidArgument), and a directory that does not
// exist (FailedPrecondition). A nil spec is refused too.
func CheckSpec(s *pluginv1.CellSpec) error {
	if err := CheckID(s.GetCellId()); err != nil {
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
	case len(s.GetLinkSecret()) != SecretSize:
		return plugin.InvalidArgument("link_secret has %d bytes instead of %d", len(s.GetLinkSecret()), SecretSize)
	case s.GetResources().GetCpu() < 0:
		return plugin.InvalidArgument("resources.cpu is negative")
	}
	switch s.GetNetwork().GetMode() {
	case pluginv1.NetworkMode_NETWORK_MODE_NONE, pluginv1.NetworkMode_NETWORK_MODE_GATEWAY, pluginv1.NetworkMode_NETWORK_MODE_OPEN:
	default:
		return plugin.InvalidArgument("network mode %d is not known", s.GetNetwork().GetMode())
	}
	if err := checkDir("link_dir", s.GetLinkDir()); err != nil {
		return err
	}
	for _, d := range s.GetFileDirs() {
		if !filepath.IsAbs(d) || filepath.Clean(d) != d || d == "/" {
			return plugin.InvalidArgument("file_dirs holds %q, which is no clean absolute path", d)
		}
	}
	return checkVolumes(s.GetVolumes())
}

func checkVolumes(volumes []*pluginv1.Volume) error {
	targets := map[string]bool{}
	for _, v := range volumes {
		switch v.GetKind() {
		case pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, pluginv1.VolumeKind_VOLUME_KIND_STATE:
		default:
			return plugin.InvalidArgument("volume %q has the unknown kind %d", v.GetVolumeId(), v.GetKind())
		}
		target := filepath.Clean(v.GetTarget())
		if !filepath.IsAbs(target) || target == "/" || targets[target] {
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
