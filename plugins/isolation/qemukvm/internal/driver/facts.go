package driver

import (
	"fmt"
	"math"
	"os"
	"path"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/plugin"
)

const (
	notAsked = "not-enforced:no limit was set"
	memoryBy = "enforced-by:vm-memory-size"
	pidsBy   = "enforced-by:guest-cgroup-v2"
	diskBy   = "enforced-by:disk-size-and-file-server"
)

const (
	minMemory = 64 << 20
	// overhead is what QEMU and the helper may take beside the VM's memory:
	// translated code, buffers, page cache of what the volumes hold.
	overhead  = 512 << 20
	maxVolume = 24 // ports of a VM's serial device, less two
)

// size is how large a VM is.
type size struct {
	Memory uint64 `json:"memory"`
	CPUs   int    `json:"cpus"`
	Disk   uint64 `json:"disk"`
}

// sizeOf says how large the VM of a spec is.
func (in *instance) sizeOf(spec *pluginv1.CellSpec) (size, error) {
	r := spec.GetResources()
	s := size{Memory: in.memory, CPUs: 1, Disk: in.disk}
	if r.GetMemoryBytes() > 0 {
		s.Memory = r.GetMemoryBytes()
	}
	if s.Memory &^= 1<<20 - 1; s.Memory < minMemory {
		return s, plugin.FailedPrecondition("a VM needs %d MiB of memory at least, not %d bytes", minMemory>>20, s.Memory)
	}
	if r.GetCpu() > 0 {
		s.CPUs = int(math.Ceil(r.GetCpu()))
	}
	if s.CPUs > 64 {
		return s, plugin.FailedPrecondition("a VM has 64 CPUs at most, not %d", s.CPUs)
	}
	if r.GetDiskBytes() > 0 {
		s.Disk = r.GetDiskBytes()
	}
	return s, nil
}

// idsOf are the uid and gid of a cell: the workload's inside, QEMU's and the
// helper's outside.
func (in *instance) idsOf(spec *pluginv1.CellSpec) (ids, error) {
	user := ids{spec.GetUid(), spec.GetGid()}
	if user.UID == 0 {
		user = in.user
	}
	if user.GID == 0 {
		user.GID = user.UID
	}
	if euid := os.Geteuid(); euid != 0 && int(user.UID) != euid {
		return user, plugin.FailedPrecondition("uid %d cannot be given: the driver runs as the ordinary user %d", user.UID, euid)
	}
	if user.UID == 0 {
		return user, plugin.FailedPrecondition("a VM is not run as root; set user")
	}
	return user, nil
}

// facts says what will be true in the cell, and refuses what cannot be given.
func (in *instance) facts(spec *pluginv1.CellSpec, user ids, c choice) (*pluginv1.CellFacts, error) {
	mode := spec.GetNetwork().GetMode()
	if mode == pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		return nil, plugin.FailedPrecondition("a VM of this driver has no network card; use network mode none or gateway")
	}
	if len(spec.GetVolumes()) > maxVolume {
		return nil, plugin.FailedPrecondition("a VM has %d volumes at most, not %d", maxVolume, len(spec.GetVolumes()))
	}
	f := &pluginv1.CellFacts{
		Os: "linux", Arch: "amd64", Network: mode, Uid: user.UID, Gid: user.GID,
		Root:   "the image, read-only (ext4), with a layer of the cell's own over it",
		Link:   pluginv1.LinkProtection_LINK_PROTECTION_PROTECTED,
		Limits: map[string]string{"cpu": notAsked, "memory": memoryBy, "pids": notAsked, "disk": diskBy},
		Confinement: []string{
			"QEMU as uid " + fmt.Sprint(user.UID) + " under its own seccomp filter (-sandbox)",
			"files of volumes served by an unprivileged helper",
		},
	}
	if os.Geteuid() == 0 {
		f.Confinement = append(f.Confinement, "QEMU and helper in empty network namespaces")
	}
	accel := "a virtual machine with a kernel of its own (" + in.kernel.Release + "), "
	if c.accel == accelKVM {
		accel += "under KVM"
	} else {
		accel += "emulated by TCG: " + c.reason
	}
	f.Confinement = append(f.Confinement, accel)
	if spec.GetResources().GetPids() > 0 {
		f.Limits["pids"] = pidsBy
	}
	for _, v := range spec.GetVolumes() {
		if v.GetKind() == pluginv1.VolumeKind_VOLUME_KIND_WORKSPACE {
			f.Workspace = path.Clean(v.GetTarget())
		} else {
			f.State = path.Clean(v.GetTarget())
		}
	}
	return f, nil
}
