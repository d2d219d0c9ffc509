package driver

import (
	"context"
	"os"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Name and Version of the driver.
const (
	Name    = "qemu-kvm"
	Version = "0.1.0"
)

// Values of the accel attribute.
const (
	accelAuto = "auto"
	accelKVM  = "kvm"
	accelTCG  = "tcg"
)

// Config is an instance's config block.
type Config struct {
	Accel        string  `json:"accel"`
	Image        string  `json:"image"`
	Kernel       *string `json:"kernel"`
	QEMU         string  `json:"qemu"`
	Machine      *string `json:"machine"`
	Memory       string  `json:"memory"`
	Disk         string  `json:"disk"`
	User         string  `json:"user"`
	CgroupParent *string `json:"cgroup_parent"`
	BootTimeout  string  `json:"boot_timeout"`
	Template     bool    `json:"template"`
}

// Describe says what the driver is.
func (d *Driver) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_ISOLATION, Name: Name, Version: Version,
		Contracts:    []string{plugin.Contract},
		Capabilities: []string{"isolation:vm"},
		Features:     []string{isolation.FeaturePause, isolation.FeatureCheckpoint},
		Summary: "Runs each cell as a virtual machine of its own, with QEMU: under KVM where that really runs code, " +
			"else emulated, and says which. A cell has its own kernel and no network card.",
		Schema: plugin.Schema(
			plugin.String("accel", "auto: KVM where a probe shows that it runs code at full speed, else TCG, QEMU's own "+
				"emulation, which needs no rights and is several times slower. kvm: KVM or nothing. tcg: always TCG.",
				plugin.Default(accelAuto), plugin.OneOf(accelAuto, accelKVM, accelTCG)),
			plugin.String("image", "Directory with the root file system, as airlock image build makes it.",
				plugin.Required(), plugin.AbsolutePath()),
			plugin.String("kernel", "The vmlinux beside a kernel.json and its modules, as airlock image build makes it. "+
				"Left out: the one in the image's directory.", plugin.AbsolutePath()),
			plugin.String("qemu", "The QEMU program.", plugin.Default("/usr/bin/qemu-system-x86_64"), plugin.AbsolutePath()),
			plugin.String("machine", "QEMU machine type, with its version, for example pc-q35-7.2. Left out: the newest q35 "+
				"that this QEMU has. A checkpoint can be restored only with the one that it was made with.",
				plugin.Pattern(`^pc-q35-[0-9.]+$`)),
			plugin.String("memory", "Memory of a VM whose agent sets no limit.", plugin.Default("512MiB"), plugin.Size()),
			plugin.String("disk", "Size of a cell's own layer over the root file system when its agent sets no limit. "+
				"Only what is written takes room.", plugin.Default("10GiB"), plugin.Size()),
			plugin.String("user", "User that QEMU and its helper run as when the host assigns a cell no uid.",
				plugin.Default("nobody")),
			plugin.String("cgroup_parent", "Control group below which the VMs get theirs. With a leading slash it "+
				"counts from the root of each hierarchy (for example /system.slice/airlock-cells.service), "+
				"without one from the driver's own place. Left out: a group named airlock.",
				plugin.Pattern(`^/?[A-Za-z0-9_.@:-]+(/[A-Za-z0-9_.@:-]+)*$`)),
			plugin.Bool("template", "Boot one VM of each kind, keep its memory in the state directory, and start the "+
				"cells from that: several times faster than a boot.", plugin.Default(true)),
			plugin.String("boot_timeout", "How long a VM may take to boot before it is given up.",
				plugin.Default("2m"), plugin.Duration()),
		),
		Needs: []*pluginv1.Need{
			{What: "uid", Value: "root", Reason: "gives every VM a uid, an empty network and cgroup limits of its own; as an " +
				"ordinary user VMs run as that user, with the limits that can then be set"},
			{What: "path", Value: "/dev/kvm", Reason: "speed; without it VMs are emulated"},
			{What: "path", Value: "/usr/sbin/mkfs.ext4", Reason: "makes the empty disk of a cell's own layer"},
			{What: "path", Value: "/sys/fs/cgroup", Reason: "limits, and the kill of everything that belongs to a VM"},
		},
	}
}

// Validate checks what the schema cannot.
func (*Driver) Validate(_ context.Context, config []byte) []*pluginv1.Diagnostic {
	var c Config
	if err := plugin.DecodeConfig(config, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The block cannot be read", err.Error())}
	}
	var out []*pluginv1.Diagnostic
	if _, err := os.Stat(c.QEMU); err != nil {
		out = append(out, plugin.Problem(plugin.Path("qemu"), "There is no QEMU", err.Error()+
			". Install it (Debian: qemu-system-x86), or say where it is."))
	}
	if _, err := loadRoot(c.Image); err != nil {
		out = append(out, plugin.Problem(plugin.Path("image"), "There is no image", err.Error()+
			". Build one with airlock image build."))
	}
	at := "kernel"
	if c.Kernel == nil {
		at = "image"
	}
	if _, err := loadKernel(c.kernel()); err != nil {
		out = append(out, plugin.Problem(plugin.Path(at), "There is no kernel", err.Error()+
			". Build one with airlock image build --kernel-deb."))
	}
	if n, err := parseSize(c.Memory); err == nil && n < minMemory {
		out = append(out, plugin.Problem(plugin.Path("memory"), "Too little memory", "A VM needs 64MiB at least."))
	}
	if _, err := lookup(c.User); err != nil && os.Geteuid() == 0 {
		out = append(out, plugin.Problem(plugin.Path("user"), "No such user", err.Error()+"."))
	}
	if c.Accel == accelTCG {
		out = append(out, plugin.Warning(plugin.Path("accel"), "VMs are emulated", "TCG is several times slower than KVM."))
	}
	return out
}

func (c *Config) bootTime() time.Duration {
	d, err := time.ParseDuration(c.BootTimeout)
	if err != nil || d <= 0 {
		return 2 * time.Minute
	}
	return d
}
