package driver

import (
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/moby/moby/api/types/system"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

const (
	notAsked         = "not-enforced:no limit was set"
	volumesUnlimited = "not-enforced:volumes are directories of the machine, without a quota"
)

// user is the workload's uid and gid.
func (in *instance) user(spec *pluginv1.CellSpec) (uid, gid uint32) {
	uid, gid = spec.GetUid(), spec.GetGid()
	if uid == 0 {
		uid, gid = in.uid, in.gid
	}
	if uid != 0 && gid == 0 {
		gid = uid
	}
	return uid, gid
}

// facts says what will be true in the cell.
func (in *instance) facts(spec *pluginv1.CellSpec, info *system.Info) *pluginv1.CellFacts {
	uid, gid := in.user(spec)
	f := &pluginv1.CellFacts{
		Os: "linux", Arch: runtime.GOARCH, Network: spec.GetNetwork().GetMode(), Uid: uid, Gid: gid,
		Link: pluginv1.LinkProtection_LINK_PROTECTION_UNPROTECTED, Limits: limits(spec, info),
	}
	f.Root = "image " + in.config.Image
	if in.config.ReadOnly {
		f.Root += ", read-only"
	} else {
		f.Root += ", with a writable layer"
	}
	f.Confinement = []string{
		"container of " + in.engine.socket + " with its own pid, mount, ipc, uts and network namespaces",
		"no capabilities and no new privileges for the workload",
	}
	switch {
	case in.seccomp != "":
		f.Confinement = append(f.Confinement, "the seccomp profile "+in.config.Seccomp)
	case secured(info, "seccomp"):
		f.Confinement = append(f.Confinement, "the engine's seccomp profile")
	}
	if secured(info, "apparmor") {
		f.Confinement = append(f.Confinement, "the engine's AppArmor profile")
	}
	if r := in.config.Runtime; r != nil {
		f.Confinement = append(f.Confinement, "the OCI runtime "+*r)
	}
	if remapped(info) {
		f.Confinement = append(f.Confinement, "not the engine's user namespace: uids are those of the machine")
	}
	if f.Network == pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		f.Confinement[0] = "container of " + in.engine.socket + " on its network " + in.config.Network
	}
	if uid != 0 {
		f.Link = pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED
		f.Confinement = append(f.Confinement, "a uid of its own")
	}
	for _, v := range spec.GetVolumes() {
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE {
			f.Workspace = path.Clean(v.GetTarget())
		} else {
			f.State = path.Clean(v.GetTarget())
		}
	}
	return f
}

// limits says of each limit whether and by what it is enforced.
func limits(spec *pluginv1.CellSpec, info *system.Info) map[string]string {
	res, by := spec.GetResources(), enforcedBy(info)
	out := map[string]string{"cpu": notAsked, "memory": notAsked, "pids": notAsked, "disk": notAsked}
	set := func(name string, asked, can bool) {
		switch {
		case asked && can:
			out[name] = by
		case asked:
			out[name] = "not-enforced:the engine says that the kernel cannot"
		}
	}
	set("cpu", res.GetCpu() > 0, info.CPUCfsQuota)
	set("memory", res.GetMemoryBytes() > 0, info.MemoryLimit)
	set("pids", res.GetPids() > 0, info.PidsLimit)
	if out["memory"] == by && !info.SwapLimit && swap() {
		out["memory"] = by + ", without swap: the kernel does not count it"
	}
	return out
}

// swap says whether the machine has any; without it nothing has to be counted.
func swap() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(b), "\n") > 1
}

// diskPlan decides what can be said and done about the limit on written disk,
// which is more than the container's layer: volumes are directories of the
// machine, which no engine limits.
func (in *instance) diskPlan(spec *pluginv1.CellSpec, info *system.Info) (how string, quota bool) {
	if spec.GetResources().GetDiskBytes() == 0 {
		return notAsked, false
	}
	quota = !in.config.ReadOnly && quotaDriver(info)
	for _, v := range spec.GetVolumes() {
		if !v.GetReadOnly() {
			return volumesUnlimited, quota
		}
	}
	switch {
	case in.config.ReadOnly:
		return "enforced-by:read-only root, and the size of each tmpfs", false
	case quota:
		return "enforced-by:" + info.Driver + " quota", true
	}
	return "not-enforced:the storage driver " + info.Driver + " has no quotas here (overlay2 needs xfs mounted with pquota)", false
}

// quotaDriver says whether the storage driver may have quotas. Whether overlay2
// really has shows only when it is asked for one.
func quotaDriver(info *system.Info) bool {
	switch info.Driver {
	case "btrfs", "zfs", "devicemapper":
		return true
	case "overlay2":
		for _, s := range info.DriverStatus {
			if s[0] == "Backing Filesystem" {
				return s[1] == "xfs"
			}
		}
	}
	return false
}
