package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Name and Version of the driver.
const (
	Name    = "docker"
	Version = "0.1.0"
)

// Values of the pull attribute.
const (
	pullMissing = "missing"
	pullNever   = "never"
	pullAlways  = "always"
)

// Config is an instance's config block.
type Config struct {
	Image        string            `json:"image"`
	Endpoint     string            `json:"endpoint"`
	Pull         string            `json:"pull"`
	User         *string           `json:"user"`
	ReadOnly     bool              `json:"read_only"`
	Tmpfs        []string          `json:"tmpfs"`
	Mounts       map[string]string `json:"mounts"`
	Network      string            `json:"network"`
	Seccomp      string            `json:"seccomp"`
	Runtime      *string           `json:"runtime"`
	CgroupParent *string           `json:"cgroup_parent"`
}

// Describe says what the driver is.
func (d *Driver) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_ISOLATION, Name: Name, Version: Version,
		Contracts:    []string{plugin.Contract},
		Capabilities: []string{"isolation:container"},
		Features:     []string{isolation.FeaturePause},
		Summary: "Runs each cell as a container of a Docker engine on this machine, from any Linux image: no network, " +
			"a read-only root, no capabilities for the workload, and limits by control groups.",
		Schema: schema(),
		Needs: []*pluginv1.Need{
			{What: "socket", Value: "/var/run/docker.sock", Reason: "speaks to the engine; whoever can do that is root on the machine"},
			{What: "uid", Value: "root", Reason: "hands the link secret over in root's own directory, and kills and counts by control group"},
			{What: "path", Value: "/sys/fs/cgroup", Reason: "proves that nothing of a stopped container is left"},
		},
	}
}

func schema() *pluginv1.ConfigSchema {
	return plugin.Schema(
		plugin.String("image", "Image that cells are made from, for example debian:bookworm-slim, or with a digest "+
			"(name@sha256:…). Any Linux image does, also one without a shell.", plugin.Required()),
		plugin.String("endpoint", "Socket of the engine, as unix:///path or a path. Engines on other machines are not supported.",
			plugin.Default("unix:///var/run/docker.sock")),
		plugin.String("pull", "missing: fetch the image when the engine does not have it. never: do not fetch. "+
			"always: ask the registry before each cell.",
			plugin.Default(pullMissing), plugin.OneOf(pullMissing, pullNever, pullAlways)),
		plugin.String("user", "Uid, or uid:gid, that the workload gets when the host assigns none. Numbers, since names "+
			"mean something else in every image.", plugin.Pattern(`^[0-9]{1,10}(:[0-9]{1,10})?$`)),
		plugin.Bool("read_only", "The root file system cannot be written to.", plugin.Default(true)),
		plugin.StringList("tmpfs", "Directories that are empty and writable in every cell. They live in memory and count "+
			"for its memory limit.", plugin.Default([]string{"/tmp", "/var/tmp", "/run"}), plugin.AbsolutePath()),
		plugin.StringMap("mounts", "Files or directories of this machine that every cell sees, read-only: path in the "+
			"cell = path on the machine.", plugin.Default(map[string]string{})),
		plugin.String("network", "Network of the engine for agents with network mode open. With the modes none and "+
			"gateway a cell has no network at the engine.", plugin.Default("bridge")),
		plugin.String("seccomp", "default: the engine's own profile. Else the absolute path of a profile in JSON.",
			plugin.Default("default")),
		plugin.String("runtime", "OCI runtime of the engine, for example runsc. Left out: the engine's default."),
		plugin.String("cgroup_parent", "Control group (or, with the engine's systemd driver, slice) below which the "+
			"cells get theirs. Left out: the engine's default."),
	)
}

// Validate checks what the schema cannot.
func (*Driver) Validate(_ context.Context, config []byte) []*pluginv1.Diagnostic {
	var c Config
	if err := plugin.DecodeConfig(config, &c); err != nil {
		return []*pluginv1.Diagnostic{plugin.Problem(nil, "The block cannot be read", err.Error())}
	}
	return c.check()
}

// imagePattern takes what the engine takes as a reference, roughly; the engine
// has the last word.
var imagePattern = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?$|^sha256:[0-9a-f]{64}$`)

func (c *Config) check() (out []*pluginv1.Diagnostic) {
	problem := func(path []*pluginv1.PathStep, summary, detail string) {
		out = append(out, plugin.Problem(path, summary, detail))
	}
	if !imagePattern.MatchString(c.Image) || strings.Contains(c.Image, "//") {
		problem(plugin.Path("image"), "Not the name of an image",
			fmt.Sprintf("%q is not a reference such as debian:bookworm-slim or registry.example/team/image@sha256:….", c.Image))
	}
	if _, err := socketOf(c.Endpoint); err != nil {
		problem(plugin.Path("endpoint"), "Not an engine on this machine", err.Error())
	}
	if _, _, err := c.user(); err != nil {
		problem(plugin.Path("user"), "Not a user", err.Error())
	}
	for i, p := range c.Tmpfs {
		if reserved(p) || strings.ContainsAny(p, ":,") {
			problem(plugin.Path("tmpfs", i), "This path cannot be a tmpfs",
				p+" is the root, holds a colon or a comma, or belongs to the driver or the kernel.")
		}
	}
	for _, target := range slices.Sorted(maps.Keys(c.Mounts)) {
		source := c.Mounts[target]
		switch {
		case !path.IsAbs(target) || reserved(target):
			problem(plugin.Path("mounts", plugin.MapKey(target)), "Nothing can be mounted there",
				fmt.Sprintf("%q is not absolute, is the root, or belongs to the driver or the kernel.", target))
		case !path.IsAbs(source):
			problem(plugin.Path("mounts", plugin.MapKey(target)), "The path on the machine is not absolute",
				fmt.Sprintf("Give the whole path instead of %q.", source))
		case !exists(source):
			problem(plugin.Path("mounts", plugin.MapKey(target)), "The path on the machine does not exist",
				fmt.Sprintf("There is no %s.", source))
		}
	}
	switch {
	case c.Network == "" || c.Network == "none" || strings.HasPrefix(c.Network, "container:"):
		problem(plugin.Path("network"), "Not a network of the engine",
			"Name one that `docker network ls` shows, for example bridge. It is used only by agents with network mode open.")
	case c.Network == "host":
		out = append(out, plugin.Warning(plugin.Path("network"), "Agents with network mode open get this machine's own network",
			"They reach every listener on 127.0.0.1, the host's among them. Prefer bridge."))
	}
	if _, err := c.seccomp(); err != nil {
		problem(plugin.Path("seccomp"), "The seccomp profile cannot be used", err.Error())
	}
	return out
}

// remote are schemes of engines elsewhere.
var remote = []string{"tcp", "ssh", "http", "https"}

// socketOf is the path of the engine's socket.
func socketOf(endpoint string) (string, error) {
	p := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		switch {
		case slices.Contains(remote, scheme):
			return "", fmt.Errorf("%s:// leads to an engine on another machine, or hides whether it does. A cell is reached through a "+
				"socket on this machine, so only an engine of this machine can be used: unix:///var/run/docker.sock. "+
				"To use another machine, run a host there", scheme)
		case scheme != "unix":
			return "", fmt.Errorf("%s:// is not known; give unix:///path or a path", scheme)
		}
		p = rest
	}
	if !path.IsAbs(p) {
		return "", fmt.Errorf("%q is no absolute path of a socket; give unix:///path or a path", endpoint)
	}
	return path.Clean(p), nil
}

// user is the configured uid and gid; 0 = none.
func (c *Config) user() (uid, gid uint32, err error) {
	if c.User == nil {
		return 0, 0, nil
	}
	u, g, both := strings.Cut(*c.User, ":")
	n, err := strconv.ParseUint(u, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("%q is not a uid, nor a uid:gid", *c.User)
	}
	m := n
	if both {
		if m, err = strconv.ParseUint(g, 10, 32); err != nil {
			return 0, 0, fmt.Errorf("%q is not a uid:gid", *c.User)
		}
	}
	if n == 0 {
		return 0, 0, fmt.Errorf("uid 0 is the cell agent's own; give the workload another one")
	}
	return uint32(n), uint32(m), nil
}

// seccomp is the profile as the engine takes it; empty = the engine's own.
func (c *Config) seccomp() (string, error) {
	if c.Seccomp == "default" || c.Seccomp == "" {
		return "", nil
	}
	if !path.IsAbs(c.Seccomp) {
		return "", fmt.Errorf("%q is neither default nor an absolute path", c.Seccomp)
	}
	b, err := os.ReadFile(c.Seccomp)
	if err != nil {
		return "", err
	}
	var profile struct {
		DefaultAction string `json:"defaultAction"`
	}
	if err := json.Unmarshal(b, &profile); err != nil {
		return "", fmt.Errorf("%s is no JSON: %w", c.Seccomp, err)
	}
	if profile.DefaultAction == "" {
		return "", fmt.Errorf("%s has no defaultAction; it is not a seccomp profile", c.Seccomp)
	}
	return string(b), nil
}

// reserved says that a path in the cell is the driver's or the kernel's.
func reserved(p string) bool {
	p = path.Clean(p)
	for _, top := range []string{cellDir, "/proc", "/sys", "/dev"} {
		if p == top || strings.HasPrefix(p, top+"/") {
			return true
		}
	}
	return p == "/"
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
