package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/plugins"
	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

func (a *app) pluginCommand() *cobra.Command {
	return group(&cobra.Command{Use: "plugin", Short: "the host's plugins"},
		a.pluginListCommand(), a.pluginInspectCommand(), lockCommand(), verifyPluginsCommand(),
		pluginTestCommand(), a.pluginNewCommand(), a.pluginReloadCommand())
}

// plugins reads every instance, as it came too.
func (c *client) plugins(ctx context.Context) ([]plugin, []json.RawMessage, error) {
	var list struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	if _, err := c.get(ctx, "/api/v1/plugins", &list); err != nil {
		return nil, nil, err
	}
	out := make([]plugin, len(list.Plugins))
	for i, raw := range list.Plugins {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, nil, err
		}
	}
	return out, list.Plugins, nil
}

func (a *app) pluginListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list plugin instances and why those that are not well are not", Args: cobra.NoArgs,
		Example: "  airlock plugin list",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		list, raw, err := c.plugins(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			text, err := json.Marshal(map[string]any{"plugins": raw})
			if err != nil {
				return err
			}
			return showJSON(cmd.OutOrStdout(), text)
		}
		w := cmd.OutOrStdout()
		if len(list) == 0 {
			fmt.Fprintln(w, "the configuration has no plugin instances")
		}
		showPlugins(w, list, width(w))
		return nil
	})
	return cmd
}

func showPlugins(w io.Writer, list []plugin, columns int) {
	if len(list) == 0 {
		return
	}
	t := table{head: []string{"PLUGIN", "STATE", "VERSION", "PID", "RESTARTS", "REASON"}, wide: 5}
	for _, p := range list {
		pid := "-"
		if p.PID > 0 {
			pid = fmt.Sprint(p.PID)
		}
		version := p.Version
		if version == "" {
			version = "-"
		}
		t.add(p.Ref, p.State, version, pid, fmt.Sprint(p.Restarts), p.Reason)
	}
	t.fit(w, columns)
}

func (a *app) pluginInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect NAME|PATH", Short: "everything about a plugin instance, or about an executable", Args: cobra.ExactArgs(1),
		Long: `Show everything about a plugin instance of the host: how it is, and what its
config block takes. A PATH (with a slash in it) is an executable: it is started,
asked what it is, and ended again; no host is needed. So is the executable of a
driver (docker, or airlock-isolation-docker) that no instance uses yet, which is
looked for in --plugin-dir.`,
		Example: "  airlock plugin inspect isolation.docker.container\n  airlock plugin inspect docker          # to write its block\n  airlock plugin inspect ./bin/plugins/airlock-runtime-command --json",
	}
	asJSON := jsonFlag(cmd)
	var dir string
	cmd.Flags().StringVar(&dir, "plugin-dir", "", "where the executable of a driver is (default: where the host has them, else /usr/lib/airlock/plugins)")
	inspect := func(cmd *cobra.Command, args []string, c *client) error {
		list, raw, err := c.plugins(cmd.Context())
		if err != nil {
			return err
		}
		found := 0
		for i, p := range list {
			if !slices.Contains([]string{p.Ref, p.Name, p.Driver, p.File}, args[0]) {
				continue
			}
			if found++; *asJSON {
				err = showJSON(cmd.OutOrStdout(), raw[i])
			} else {
				p.show(cmd.OutOrStdout())
			}
			if err != nil {
				return err
			}
		}
		if found == 0 {
			return errNoInstance
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if strings.Contains(args[0], "/") {
			return inspectFile(cmd, args[0], *asJSON)
		}
		c, done, err := a.client()
		if err == nil {
			defer done()
			if err = inspect(cmd, args, c); err == nil {
				return nil
			}
		}
		where := dir
		if where == "" {
			where = c.pluginDir(cmd.Context())
		}
		files := executables(where, args[0])
		for _, file := range files {
			if err := inspectFile(cmd, file, *asJSON); err != nil {
				return err
			}
		}
		switch {
		case len(files) > 0:
			return nil
		case errors.Is(err, errNoInstance):
			return failf(ExitNotFound, "there is no plugin instance %q (airlock plugin list shows them), and no executable of a plugin of that name in %s; --plugin-dir DIR looks elsewhere, and the PATH of an executable, such as ./airlock-isolation-docker, works too", args[0], where)
		}
		return err // it may be an instance of a host that does not answer
	}
	return cmd
}

var errNoInstance = errors.New("there is no such plugin instance")

// pluginDir is where the host has its plugins, as far as it says so; else where
// packages put them.
func (c *client) pluginDir(ctx context.Context) string {
	var host struct {
		Settings []config.Setting `json:"settings"`
	}
	if c != nil {
		if _, err := c.get(ctx, "/api/v1/config", &host); err == nil {
			for _, s := range host.Settings {
				if dir, err := strconv.Unquote(s.Text); s.Path == "plugins.dir" && err == nil {
					return dir
				}
			}
		}
	}
	return "/usr/lib/airlock/plugins"
}

// executables are the plugins in a directory that have a name or are called so.
func executables(dir, name string) []string {
	var paths []string
	found, err := plugins.Find(dir)
	if err != nil {
		return nil
	}
	for _, f := range found {
		if name == f.Name || name == f.File {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// inspectFile starts an executable and shows what it says of itself.
func inspectFile(cmd *cobra.Command, path string, asJSON bool) error {
	if _, err := os.Stat(path); err != nil {
		return failf(ExitNotFound, "%w", err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), inspectTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "al")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := conformance.Launch(ctx, path, conformance.LaunchOptions{Dir: dir})
	if err != nil {
		return err
	}
	defer p.Kill()
	d, err := pluginv1.NewPluginClient(p.Conn).Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("%s did not describe itself: %w", path, err)
	}
	text, err := json.Marshal(plugins.Described(d))
	if err != nil {
		return err
	}
	if asJSON {
		return showJSON(cmd.OutOrStdout(), text)
	}
	var shown plugin
	if err := json.Unmarshal(text, &shown); err != nil {
		return err
	}
	shown.Ref = path
	shown.show(cmd.OutOrStdout())
	return nil
}

// inspectTime is how long an executable may take to say what it is.
const inspectTime = 20 * time.Second

func (p *plugin) show(w io.Writer) {
	line(w, "plugin", p.Ref)
	line(w, "summary", p.Summary)
	line(w, "state", p.State)
	line(w, "reason", strings.TrimSpace(p.Code+" "+p.Reason))
	line(w, "version", p.Version)
	line(w, "file", p.File)
	line(w, "sha256", p.SHA256)
	if p.PID > 0 {
		line(w, "pid", fmt.Sprint(p.PID))
	}
	line(w, "restarts", fmt.Sprint(p.Restarts))
	line(w, "last exit", p.LastExit)
	line(w, "contracts", strings.Join(p.Contracts, ", "))
	line(w, "capabilities", strings.Join(p.Capabilities, ", "))
	line(w, "features", strings.Join(p.Features, ", "))
	names := make([]string, 0, len(p.Attributes))
	for name := range p.Attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line(w, "attribute", name+" = "+p.Attributes[name])
	}
	for _, n := range p.Needs {
		line(w, "needs", n.What+" "+n.Value+": "+n.Reason)
	}
	if len(p.Schema) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{head: []string{"CONFIG", "TYPE", "DEFAULT", "WHAT"}, wide: 3}
	for _, a := range p.Schema {
		def := string(a.Default)
		if a.Required {
			def = "required"
		}
		typ := a.Type
		if a.Sensitive {
			typ += ", secret"
		}
		t.add(a.Name, typ, def, a.Description)
	}
	t.print(w)
}

func (a *app) pluginReloadCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reload NAME", Short: "start a plugin's process anew from its executable", Args: cobra.ExactArgs(1),
		Long:    "Start a plugin's process anew from its executable as it is now. Missions go on;\nif the new process does not come up, the old one stays.",
		Example: "  airlock plugin reload isolation.docker.container",
		RunE: a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
			_, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/plugins/"+segment(args[0])+"/reload", nil)
			return named(err, "plugin instance", args[0])
		}),
	}
}
