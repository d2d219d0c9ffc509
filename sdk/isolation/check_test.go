package isolation

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func TestCheckSpec(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		change func(*pluginv1.CellSpec)
		want   codes.Code
	}{
		"good":                    {func(*pluginv1.CellSpec) {}, codes.OK},
		"an id with a dot":        {func(s *pluginv1.CellSpec) { s.CellId = "a.b" }, codes.InvalidArgument},
		"an id that climbs":       {func(s *pluginv1.CellSpec) { s.CellId = "../x" }, codes.InvalidArgument},
		"an id that is too long":  {func(s *pluginv1.CellSpec) { s.CellId = strings.Repeat("a", 65) }, codes.InvalidArgument},
		"no incarnation":          {func(s *pluginv1.CellSpec) { s.Incarnation = 0 }, codes.InvalidArgument},
		"a relative agent":        {func(s *pluginv1.CellSpec) { s.AgentBinary = "agent" }, codes.InvalidArgument},
		"a checksum of MD5":       {func(s *pluginv1.CellSpec) { s.AgentSha256 = strings.Repeat("a", 32) }, codes.InvalidArgument},
		"a short secret":          {func(s *pluginv1.CellSpec) { s.LinkSecret = []byte("x") }, codes.InvalidArgument},
		"a negative limit":        {func(s *pluginv1.CellSpec) { s.Resources = &pluginv1.Resources{Cpu: -1} }, codes.InvalidArgument},
		"no network mode":         {func(s *pluginv1.CellSpec) { s.Network = nil }, codes.InvalidArgument},
		"an unknown network mode": {func(s *pluginv1.CellSpec) { s.Network.Mode = 99 }, codes.InvalidArgument},
		"an unknown volume kind":  {func(s *pluginv1.CellSpec) { s.Volumes[0].Kind = 99 }, codes.InvalidArgument},
		"a volume over the root":  {func(s *pluginv1.CellSpec) { s.Volumes[0].Target = "/x/.." }, codes.InvalidArgument},
		"two volumes at one path": {func(s *pluginv1.CellSpec) { s.Volumes = append(s.Volumes, s.Volumes[0]) }, codes.InvalidArgument},
		"a link directory that is missing": {
			func(s *pluginv1.CellSpec) { s.LinkDir = filepath.Join(dir, "none") }, codes.FailedPrecondition},
		"a volume that is missing": {
			func(s *pluginv1.CellSpec) { s.Volumes[0].HostPath = filepath.Join(dir, "none") }, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &pluginv1.CellSpec{
				CellId: "c-1", Incarnation: 1, AgentBinary: "/agent", AgentSha256: strings.Repeat("a", 64), LinkDir: dir,
				LinkSecret: make([]byte, SecretSize), Network: &pluginv1.Network{Mode: pluginv1.NetworkMode_NETWORK_MODE_NONE},
				Volumes: []*pluginv1.Volume{{VolumeId: "v", Kind: pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE, HostPath: dir, Target: "/w"}},
			}
			tt.change(s)
			if err := CheckSpec(s); status.Code(err) != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	if err := CheckSpec(nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no spec: %v", err)
	}
}
