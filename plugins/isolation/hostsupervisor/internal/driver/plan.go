package driver

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/airlock-host/airlock/plugins/internal/cgroup"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
	"github.com/airlock-host/airlock/sdk/stage"
)

const (
	notAsked      = "not-enforced:no limit was set"
	diskUnlimited = "not-enforced:volumes are directories of the machine, without a quota"
	agentPath     = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// ids are the workload's uid and gid as the cell sees them.
type ids struct{ uid, gid uint32 }

// facts says what will be true in the cell, limits by groups aside, and
// refuses what cannot be given.
func (in *instance) facts(spec *pluginv1.CellSpec) (*pluginv1.CellFacts, error) {
	mode := spec.GetNetwork().GetMode()
	if in.level == levelNone && mode != pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		return nil, plugin.FailedPrecondition("a cell without namespaces has the machine's network (%s)", in.levelWhy)
	}
	user := ids{spec.GetUid(), spec.GetGid()}
	if user.uid == 0 {
		user = ids{in.uid, in.gid}
	}
	if user.uid != 0 && user.gid == 0 {
		user.gid = user.uid
	}
	if euid := os.Geteuid(); euid != 0 {
		if user.uid != 0 && int(user.uid) != euid {
			return nil, plugin.FailedPrecondition("uid %d cannot be given: the driver runs as the ordinary user %d", user.uid, euid)
		}
		user = ids{} // the agent's own: root of a user namespace, or the user itself
		if in.level == levelNone {
			user = ids{uint32(euid), uint32(os.Getegid())}
		}
	}
	f := &pluginv1.CellFacts{
		Os: goos, Arch: goarch, Network: mode, Uid: user.uid, Gid: user.gid,
		Root:   "the machine's own files, read-only, with its own /tmp, /run, /dev and a layer over /etc",
		Link:   pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED,
		Limits: map[string]string{"cpu": notAsked, "memory": notAsked, "pids": notAsked, "disk": notAsked},
	}
	if in.level == levelNone {
		f.Root = "the machine's own files"
	}
	if os.Geteuid() == 0 && user.uid != 0 {
		f.Link = pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED
		f.Confinement = append(f.Confinement, "a uid of its own")
	}
	if spec.GetResources().GetDiskBytes() > 0 {
		f.Limits["disk"] = diskUnlimited
	}
	for _, v := range spec.GetVolumes() {
		at := path.Clean(v.GetTarget())
		if in.level == levelNone {
			at = v.GetHostPath()
		}
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE {
			f.Workspace = at
		} else {
			f.State = at
		}
		if v.GetReadOnly() && in.level == levelNone {
			if err := in.checkReadOnly(spec, v); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// checkReadOnly refuses a read-only volume of a plain cell that Landlock cannot
// keep from being written to.
func (in *instance) checkReadOnly(spec *pluginv1.CellSpec, v *pluginv1.Volume) error {
	if !in.config.Landlock || stage.LandlockVersion() < 2 {
		return plugin.FailedPrecondition("volume %s cannot be read-only without namespaces or Landlock", v.GetVolumeId())
	}
	for _, w := range in.writable(spec, false) {
		if rel, err := filepath.Rel(w, v.GetHostPath()); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return plugin.FailedPrecondition("volume %s cannot be read-only without namespaces: it lies below %s, where cells may write", v.GetVolumeId(), w)
		}
	}
	return nil
}

// startOf says how to start the cell's agent.
func (in *instance) startOf(spec *pluginv1.CellSpec, r *record, facts *pluginv1.CellFacts) start {
	s := start{level: in.level, group: r.Groups, setup: stage.Setup{Tasks: r.Groups.Tasks(), Env: []string{agentPath}}}
	link, groups := spec.GetLinkDir(), agentGroups(r.Groups)
	if in.level == levelNone {
		s.setup.Subreaper = true
		s.setup.Argv = agentArgv(link, r.Public, slices.Sorted(maps.Keys(groups)))
		s.setup.DropCapabilities = os.Geteuid() == 0
		if in.config.Landlock {
			s.setup.Writable = append(in.writable(spec, false), link, r.Public)
			s.setup.Writable = append(s.setup.Writable, slices.Sorted(maps.Keys(groups))...)
		}
		return s
	}
	s.ownNet = spec.GetNetwork().GetMode() != pluginv1.NetworkMode_NETWORK_MODE_OPEN
	root := &stage.Root{
		Scratch: in.scratchDir(), LinkDir: link, Agent: spec.GetAgentBinary(), User: in.level == levelUser,
		TmpBytes: spec.GetResources().GetDiskBytes(), Hide: in.hidden(spec),
	}
	var seen []string
	for _, host := range slices.Sorted(maps.Keys(groups)) {
		at := path.Join(stage.CellCgroupDir, groups[host])
		// The agent only reads what was killed for memory; the limits are no
		// business of anybody in the cell.
		root.Binds = append(root.Binds, stage.Bind{Source: host, Target: at, ReadOnly: groups[host] == "memory"})
		seen = append(seen, at)
	}
	for _, p := range in.config.Writable {
		root.Binds = append(root.Binds, stage.Bind{Source: p, Target: p})
	}
	for _, v := range spec.GetVolumes() {
		root.Binds = append(root.Binds, stage.Bind{Source: v.GetHostPath(), Target: v.GetTarget(), ReadOnly: v.GetReadOnly()})
	}
	s.setup.Root, s.setup.Loopback, s.setup.Hostname = root, s.ownNet, spec.GetCellId()
	s.setup.DropCapabilities = true
	s.setup.Argv = agentArgv(stage.CellLinkDir, stage.CellPublicDir, seen)
	if in.config.Landlock {
		s.setup.Writable = in.writable(spec, true)
	}
	if n := spec.GetResources().GetPids(); n > 0 && in.level == levelUser && strings.HasPrefix(facts.Limits["pids"], "not-enforced:") {
		// Counted per user namespace, so for this cell alone.
		s.setup.Processes = n
		facts.Limits["pids"] = "enforced-by:rlimit"
	}
	return s
}

// agentArgv is the command line of the cell agent.
func agentArgv(link, public string, groups []string) []string {
	argv := []string{"airlock-cell", "serve", "--link-dir", link, "--public-dir", public,
		"--secret-fd", strconv.Itoa(stage.SecretFD)}
	for _, g := range groups {
		argv = append(argv, "--cgroup", g)
	}
	return argv
}

// agentGroups are the groups that the agent may use: for a group per session,
// and to see what was killed for memory. The value is a name for each.
func agentGroups(g *cgroup.Group) map[string]string {
	out := map[string]string{}
	if g.V2 != "" {
		out[g.V2] = "unified"
	}
	for _, c := range []string{"freezer", "memory"} {
		if dir := g.V1[c]; dir != "" {
			out[dir] = c
		}
	}
	return out
}

// writable are the paths that Landlock leaves writable.
func (in *instance) writable(spec *pluginv1.CellSpec, ownRoot bool) []string {
	out := []string{"/dev", "/proc", "/tmp", "/var/tmp"}
	if ownRoot {
		out = append(out, "/etc", "/run")
		for _, h := range in.config.Hide {
			if path.Dir(path.Clean(h)) == "/" {
				out = append(out, h) // a fresh directory
			}
		}
	}
	out = append(out, in.config.Writable...)
	for _, v := range spec.GetVolumes() {
		switch {
		case v.GetReadOnly():
		case ownRoot:
			out = append(out, v.GetTarget())
		default:
			out = append(out, v.GetHostPath())
		}
	}
	return out
}

// hidden are the paths that a cell sees as empty: what is configured, this
// driver's state, and the link directories of other cells.
func (in *instance) hidden(spec *pluginv1.CellSpec) []string {
	out := slices.Clone(in.config.Hide)
	for _, p := range []string{in.state, filepath.Dir(spec.GetLinkDir())} {
		if path.Dir(path.Clean(p)) != "/" {
			out = append(out, p)
		}
	}
	return out
}

// namespaces says in words what start.attributes asks for.
func (s *start) namespaces() string {
	if s.level == levelNone {
		return ""
	}
	names := "pid, mount, ipc, uts"
	if s.ownNet {
		names += ", network"
	}
	if s.level == levelUser {
		names += ", user"
	}
	return "own namespaces: " + names
}

// marker is an entry that the agent puts into the environment of everything
// that it starts. A plain process is found by it when its agent is dead.
func (r *record) marker() string { return "AIRLOCK_ASK_SOCKET=" + path.Join(r.Public, "ask.sock") }
