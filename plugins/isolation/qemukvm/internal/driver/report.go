package driver

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/internal/kvm"
)

// choice is the accelerator of a VM, and why it is that one.
type choice struct {
	accel  string // "kvm" or "tcg"
	reason string
}

// choose takes KVM only where it was proven; turned is why it failed since.
func choose(accel string, found kvm.Result, turned string) choice {
	switch {
	case accel == accelTCG:
		return choice{accelTCG, "accel = \"tcg\""}
	case turned != "" && accel != accelKVM:
		return choice{accelTCG, "KVM runs code, but no VM boots with it: " + turned}
	case found.Working():
		return choice{accelKVM, "KVM works: " + found.Detail}
	case accel == accelKVM:
		return choice{"", "KVM is " + string(found.State) + ": " + found.Detail}
	}
	return choice{accelTCG, "KVM is " + string(found.State) + ": " + found.Detail}
}

func (d *Driver) choose(in *instance) choice {
	turned := ""
	if why := d.noKVM.Load(); why != nil {
		turned = *why
	}
	return choose(in.config.Accel, in.kvm, turned)
}

// report tells the host how the instance is.
func (d *Driver) report(in *instance) {
	c := d.choose(in)
	attrs := map[string]string{
		"accel": c.accel, "accel.reason": c.reason, "kvm": string(in.kvm.State), "link": "protected",
		"limit.disk": diskBy, "limit.pids": pidsBy, "volumes": "files served by a helper process; checkpoints keep them",
	}
	if in.kvm.PerSecond > 0 {
		attrs["kvm.speed"] = fmt.Sprintf("%.1fM instructions/s", in.kvm.PerSecond/1e6)
	}
	if in.engine != nil {
		attrs["engine"], attrs["machine"] = "QEMU "+in.engine.version, in.engine.machine
	}
	if in.kernel != nil {
		attrs["kernel"] = in.kernel.Release
	}
	support := in.groups.Support()
	attrs["limit.cpu"] = support["cpu"]
	attrs["limit.memory"] = memoryBy
	if in.trouble != "" {
		d.Health().Unavailable(in.trouble, attrs)
		return
	}
	var reasons []string
	if c.accel == accelTCG {
		reasons = append(reasons, "VMs are emulated (TCG) and several times slower than with KVM: "+c.reason)
	}
	if strings.HasPrefix(support["cpu"], "not-enforced:") {
		reasons = append(reasons, "the CPU limit cannot be enforced ("+strings.TrimPrefix(support["cpu"], "not-enforced:")+")")
	}
	if os.Geteuid() != 0 {
		reasons = append(reasons, "all VMs run as one ordinary user")
	}
	slices.Sort(reasons)
	if len(reasons) > 0 {
		d.Health().Degraded(strings.Join(reasons, "; "), attrs)
		return
	}
	d.Health().Healthy(attrs)
}
