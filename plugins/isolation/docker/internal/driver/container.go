package driver

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// agentCapabilities are what the cell agent needs as uid 0 of the cell: to give
// processes their uid, to signal them, and to place files for them. The
// workload has none.
var agentCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"}

// maxHostname is what the kernel takes, less one for old programs.
const maxHostname = 63

// bind is a directory or file of the machine in the cell.
type bind struct {
	source, target string
	readOnly       bool
}

// plan is a container to make.
type plan struct {
	options client.ContainerCreateOptions
	labels  map[string]string
}

// plan lays a container out. It holds nothing secret: everybody who may ask the
// engine can read it.
func (in *instance) plan(spec *pluginv1.CellSpec, facts *pluginv1.CellFacts, info *system.Info, boot string) (*plan, error) {
	labels, err := in.labels(spec, facts, boot)
	if err != nil {
		return nil, err
	}
	hostname := spec.GetCellId()
	config := &container.Config{
		Image: in.config.Image, Hostname: hostname[:min(len(hostname), maxHostname)], User: "0:0", WorkingDir: "/",
		Entrypoint: []string{cellAgent}, Cmd: []string{
			"serve", "--link-dir", cellLinkDir, "--public-dir", cellPublicDir, "--secret-file", cellLinkDir + "/" + secretFile,
			// To see what the kernel killed for memory; both are read-only.
			"--cgroup", "/sys/fs/cgroup", "--cgroup", "/sys/fs/cgroup/memory",
		},
		Labels: labels, StopSignal: "SIGTERM",
		// The image's own would run beside the agent.
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	res := spec.GetResources()
	host := &container.HostConfig{
		NetworkMode: in.network(spec), ReadonlyRootfs: in.config.ReadOnly,
		CapDrop: []string{"ALL"}, CapAdd: agentCapabilities,
		SecurityOpt: []string{"no-new-privileges"},
		IpcMode:     container.IPCModePrivate,
		Tmpfs:       in.tmpfs(spec), Mounts: in.binds(spec),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// The agent's few lines; the workload's output never comes this way.
		LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "256k", "max-file": "1"}},
		Resources: container.Resources{NanoCPUs: int64(res.GetCpu() * 1e9)},
	}
	if m := int64(res.GetMemoryBytes()); m > 0 && info.MemoryLimit {
		host.Memory = m
		if info.SwapLimit {
			host.MemorySwap = m // memory and swap together
		}
	}
	if n := int64(res.GetPids()); n > 0 && info.PidsLimit {
		host.PidsLimit = &n
	}
	if !info.CPUCfsQuota {
		host.NanoCPUs = 0
	}
	if in.seccomp != "" {
		host.SecurityOpt = append(host.SecurityOpt, "seccomp="+in.seccomp)
	}
	if r := in.config.Runtime; r != nil {
		host.Runtime = *r
	}
	if p := in.config.CgroupParent; p != nil {
		host.CgroupParent = *p
	}
	if remapped(info) {
		// The link directory is root's, and volumes belong to the uid that the
		// host has chosen; both are uids of the machine.
		host.UsernsMode = "host"
	}
	return &plan{labels: labels, options: client.ContainerCreateOptions{
		Name: containerName(in.hostID, spec.GetCellId()), Config: config, HostConfig: host,
	}}, nil
}

// limitDisk adds a quota of the storage driver for the container's own layer.
func (p *plan) limitDisk(bytes uint64) {
	p.options.HostConfig.StorageOpt = map[string]string{"size": strconv.FormatUint(bytes, 10)}
}

// noDiskLimit takes the quota back, which the engine has refused, and says so.
func (p *plan) noDiskLimit(why string) error {
	p.options.HostConfig.StorageOpt = nil
	var n note
	if err := json.Unmarshal([]byte(p.labels[labelCell]), &n); err != nil {
		return err
	}
	facts := n.facts()
	facts.Limits["disk"] = "not-enforced:" + why
	return n.put(p.labels, facts)
}

func (in *instance) network(spec *pluginv1.CellSpec) container.NetworkMode {
	if spec.GetNetwork().GetMode() == pluginv1.NetworkMode_NETWORK_MODE_OPEN {
		return container.NetworkMode(in.config.Network)
	}
	return "none"
}

// tmpfs are the directories in memory. The driver's own is on one, so that
// nothing is left of it in an image's layer and the root may be read-only.
func (in *instance) tmpfs(spec *pluginv1.CellSpec) map[string]string {
	size := ""
	if n := spec.GetResources().GetDiskBytes(); n > 0 {
		size = ",size=" + strconv.FormatUint(n, 10)
	}
	out := map[string]string{cellDir: "rw,noexec,nosuid,nodev,mode=0755,size=1m"}
	for _, p := range spec.GetFileDirs() {
		if in.config.ReadOnly && !taken(spec, p) { // else the agent can make it
			out[path.Clean(p)] = "rw,noexec,nosuid,nodev,mode=0755,size=1m"
		}
	}
	for _, p := range in.config.Tmpfs {
		mode := "1777"
		if path.Clean(p) == "/run" {
			mode = "0755"
		}
		if !taken(spec, p) {
			out[path.Clean(p)] = "rw,exec,nosuid,nodev,mode=" + mode + size
		}
	}
	return out
}

// taken says that a volume lies at this very path.
func taken(spec *pluginv1.CellSpec, p string) bool {
	return slices.ContainsFunc(spec.GetVolumes(), func(v *pluginv1.Volume) bool {
		return path.Clean(v.GetTarget()) == path.Clean(p)
	})
}

// binds are the agent, the link directory, the volumes and what the
// configuration adds.
func (in *instance) binds(spec *pluginv1.CellSpec) (out []mount.Mount) {
	all := []bind{{spec.GetAgentBinary(), cellAgent, true}, {spec.GetLinkDir(), cellLinkDir, false}}
	for _, b := range in.mounts() {
		if !taken(spec, b.target) {
			all = append(all, b)
		}
	}
	for _, v := range spec.GetVolumes() {
		all = append(all, bind{v.GetHostPath(), path.Clean(v.GetTarget()), v.GetReadOnly()})
	}
	for _, b := range all {
		out = append(out, mount.Mount{
			Type: mount.TypeBind, Source: b.source, Target: b.target, ReadOnly: b.readOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	return out
}

// remapped says that the engine gives containers a user namespace.
func remapped(info *system.Info) bool { return secured(info, "userns") }

// secured says that the engine has a security option of this name.
func secured(info *system.Info, name string) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return slices.Contains(strings.Split(o, ","), "name="+name)
	})
}

func enforcedBy(info *system.Info) string {
	return fmt.Sprintf("enforced-by:cgroup-v%s", max(info.CgroupVersion, "1"))
}
