package driver

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"path"
	"strconv"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/isolation"
	"github.com/airlock-host/airlock/sdk/plugin"
)

// Name and Version of the driver.
const (
	Name    = "host-supervisor"
	Version = "0.1.0"
)

// Values of the namespaces attribute.
const (
	namespacesAuto = "auto"
	namespacesNone = "none"
)

// Config is an instance's config block.
type Config struct {
	User         *string  `json:"user"`
	CgroupParent *string  `json:"cgroup_parent"`
	Namespaces   string   `json:"namespaces"`
	Landlock     bool     `json:"landlock"`
	Hide         []string `json:"hide"`
	Writable     []string `json:"writable"`
}

// Describe says what the driver is.
func (d *Driver) Describe() *pluginv1.DescribeResponse {
	return &pluginv1.DescribeResponse{
		Kind: pluginv1.Kind_KIND_ISOLATION, Name: Name, Version: Version,
		Contracts:    []string{plugin.Contract},
		Capabilities: []string{"isolation:host"},
		Features:     []string{isolation.FeaturePause},
		Summary: "Runs each cell as processes of this machine, in namespaces and cgroups of their own where the " +
			"kernel allows it. The least isolated tier: a cell shares the machine's kernel and reads its files.",
		Schema: plugin.Schema(
			plugin.String("user", "User whose uid and gid the workload gets when the host assigns none. "+
				"Only root can give a cell another user."),
			plugin.String("cgroup_parent", "Control group below which the cells get theirs. With a leading slash it "+
				"counts from the root of each hierarchy (for example /system.slice/airlock-cells.service), "+
				"without one from the driver's own place. Left out: a group named airlock.",
				plugin.Pattern(`^/?[A-Za-z0-9_.@:-]+(/[A-Za-z0-9_.@:-]+)*$`)),
			plugin.String("namespaces", "auto: as many namespaces as the kernel allows. none: plain processes; "+
				"then a cell has the machine's network and its agent's user.",
				plugin.Default(namespacesAuto), plugin.OneOf(namespacesAuto, namespacesNone)),
			plugin.Bool("landlock", "Let cells write only to their volumes and their own directories by Landlock too, "+
				"where the kernel has it.", plugin.Default(true)),
			plugin.StringList("hide", "Directories of the machine that cells see as empty.",
				plugin.Default([]string{"/root"}), plugin.AbsolutePath()),
			plugin.StringList("writable", "Paths of the machine that cells may write to, beside their volumes. "+
				"What one cell writes there, every other can read.",
				plugin.Default([]string{}), plugin.AbsolutePath()),
		),
		Needs: []*pluginv1.Need{
			{What: "uid", Value: "root", Reason: "gives cells another uid, namespaces and cgroup limits; as an ordinary " +
				"user it does what the kernel allows and says what is missing"},
			{What: "path", Value: "/sys/fs/cgroup", Reason: "limits, freezing, and the kill of everything in a cell"},
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
	if c.User != nil {
		if _, _, err := lookup(*c.User); err != nil {
			out = append(out, plugin.Problem(plugin.Path("user"), "No such user",
				err.Error()+". Make the user first, for example with useradd --system "+*c.User+"."))
		}
	}
	for name, list := range map[string][]string{"hide": c.Hide, "writable": c.Writable} {
		for i, p := range list {
			if path.Clean(p) == "/" {
				out = append(out, plugin.Problem(plugin.Path(name, i), "The root cannot be named here",
					"Name the directories that are meant."))
			}
		}
	}
	if c.Namespaces == namespacesNone {
		out = append(out, plugin.Warning(plugin.Path("namespaces"), "Cells are plain processes",
			"Agents with network mode none or gateway cannot use this instance."))
	}
	return out
}

// lookup finds a user's uid and gid by name or number.
func lookup(name string) (uid, gid uint32, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		if byID, e := user.LookupId(name); e == nil {
			u, err = byID, nil
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look up user %q: %w", name, err)
	}
	n, errU := strconv.ParseUint(u.Uid, 10, 32)
	g, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return 0, 0, fmt.Errorf("look up user %q: %w", name, err)
	}
	return uint32(n), uint32(g), nil
}
