package configcmd

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/config/dist"
)

// places are the directories that a new configuration names.
type places struct {
	data, heads, run, plugins string
}

// Init is `airlock init`.
func Init() *cobra.Command {
	var force bool
	var at places
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration to start from",
		Long: "Init writes a commented configuration that is valid as it is, and an operator's token beside it.\n" +
			"For root it names the system's directories, for anybody else directories of their own. A token that is there already is kept.",
		Example: "  airlock init\n  airlock init /etc/airlock/airlock.hcl\n  airlock init --data-dir /srv/airlock ./airlock.hcl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			file := "airlock.hcl"
			if len(args) == 1 {
				file = args[0]
			}
			return writeConfig(cmd, file, at.or(defaultPlaces()), force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a configuration that is there")
	cmd.Flags().StringVar(&at.data, "data-dir", "", "data_dir of the configuration")
	cmd.Flags().StringVar(&at.run, "run-dir", "", "run_dir of the configuration")
	cmd.Flags().StringVar(&at.heads, "heads-dir", "", "directory of the journals' heads")
	cmd.Flags().StringVar(&at.plugins, "plugins-dir", "", "directory of the plugins")
	return cmd
}

// or is p with what it leaves out taken from d.
func (p places) or(d places) places {
	for _, f := range []struct{ own, other *string }{{&p.data, &d.data}, {&p.heads, &d.heads}, {&p.run, &d.run}, {&p.plugins, &d.plugins}} {
		if *f.own == "" {
			*f.own = *f.other
		}
	}
	return p
}

// defaultPlaces are the system's directories for root, else the user's own
// (XDG base directories).
func defaultPlaces() places {
	p := places{data: "/var/lib/airlock", heads: "/var/lib/airlock-heads", run: "/run/airlock", plugins: "/usr/lib/airlock/plugins"}
	if exe, err := os.Executable(); err == nil {
		if dir := filepath.Join(filepath.Dir(exe), "plugins"); isDir(dir) {
			p.plugins = dir
		}
	}
	home, err := os.UserHomeDir()
	if os.Geteuid() == 0 || err != nil {
		return p
	}
	state := envOr("XDG_STATE_HOME", filepath.Join(home, ".local", "state"))
	p.data, p.heads = filepath.Join(state, "airlock"), filepath.Join(state, "airlock-heads")
	p.run = filepath.Join(envOr("XDG_RUNTIME_DIR", filepath.Join(os.TempDir(), fmt.Sprintf("airlock-%d", os.Getuid()))), "airlock")
	return p
}

func writeConfig(cmd *cobra.Command, file string, at places, force bool) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if isDir(file) {
		file = filepath.Join(file, "airlock.hcl")
	}
	if _, err := os.Lstat(file); err == nil && !force {
		return fmt.Errorf("%s is there already; --force replaces it", file)
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	token := filepath.Join(dir, "operator.token")
	made, err := makeToken(token)
	if err != nil {
		return err
	}
	text, err := render(dir, at)
	if err != nil {
		return err
	}
	sources := &config.Sources{}
	if _, diags := config.Parse([]config.Source{{Name: file, Bytes: text}}, config.Options{Strict: true, Sources: sources}); diags.HasErrors() {
		if err := report(cmd.ErrOrStderr(), diags, sources); err != nil {
			return err
		}
		return errors.New("the configuration would not be valid; nothing was written")
	}
	if err := renameio.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "Wrote %s.\n", file)
	if made {
		fmt.Fprintf(out, "Wrote the operator's token to %s.\n", token)
	}
	fmt.Fprintf(out, "Next: airlock serve --config %s\n", file)
	return nil
}

// render is the default configuration with these directories in it.
func render(dir string, at places) ([]byte, error) {
	var pairs []string
	for _, p := range [][2]string{
		{"/var/lib/airlock-heads", at.heads}, {"/var/lib/airlock", at.data}, {"/run/airlock", at.run},
		{"/usr/lib/airlock/plugins", at.plugins}, {"/etc/airlock", dir},
	} {
		abs, err := filepath.Abs(p[1])
		if err != nil {
			return nil, err
		}
		quoted := string(hclwrite.TokensForValue(cty.StringVal(abs)).Bytes())
		pairs = append(pairs, p[0], strings.Trim(strings.TrimSpace(quoted), `"`))
	}
	text := strings.NewReplacer(pairs...).Replace(dist.Config)
	text = strings.Replace(text, "[0]", fmt.Sprintf("[%d]", os.Getuid()), 1)
	return hclwrite.Format([]byte(text)), nil
}

// makeToken writes a new token unless there is a file already; made says so.
func makeToken(file string) (made bool, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return false, errors.Join(err, f.Close())
	}
	_, err = f.WriteString(hex.EncodeToString(raw) + "\n")
	return true, errors.Join(err, f.Close())
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func envOr(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}
