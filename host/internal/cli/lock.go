package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cli/configcmd"
	"github.com/airlock-host/airlock/host/internal/plugins"
)

// lockPlaces are the flags that say where plugins and their lock file are.
// These commands need no host: they are for before it starts.
type lockPlaces struct{ config, lock string }

func (p *lockPlaces) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.config, "config", "c", "", "configuration that names both (default: "+configcmd.DefaultPath+" if it is there)")
	cmd.Flags().StringVar(&p.lock, "lock", "", "lock file (default: plugins.lock of the configuration)")
}

// find is the plugin directory and the lock file: what is named wins, then the
// configuration, then its defaults.
func (p *lockPlaces) find(args []string) (dir, lock string, err error) {
	if len(args) > 0 {
		dir = args[0]
	}
	if lock = p.lock; dir != "" && lock != "" {
		return dir, lock, nil
	}
	path := p.config
	if path == "" {
		path = configcmd.DefaultPath
	}
	var cfg *config.Config
	if _, serr := os.Stat(path); p.config != "" || serr == nil {
		loaded, diags := config.Load(path, config.Options{})
		if diags.HasErrors() {
			return "", "", failf(ExitFailed, "%s cannot be used (airlock validate %s says why); name DIR and --lock to go without it", path, shellQuote(path))
		}
		cfg = loaded
	} else {
		parsed, diags := config.Parse(nil, config.Options{})
		if parsed == nil {
			return "", "", diags
		}
		cfg = parsed
	}
	if dir == "" {
		dir = cfg.Plugins.Dir
	}
	if lock == "" {
		lock = cfg.Plugins.Lock
	}
	if lock == "" {
		return "", "", failf(ExitFailed, "the configuration names no lock file; name one with --lock")
	}
	return dir, lock, nil
}

// The states of an executable against its lock file.
const (
	lockOK        = "ok"
	lockChanged   = "changed"    // its sha256 is another
	lockNotLocked = "not_locked" // the lock file does not have it
	lockMissing   = "missing"    // the directory does not have it
)

// locked is one executable, in the directory or in the lock file.
type locked struct {
	File   string  `json:"file"`
	State  string  `json:"state"`
	SHA256 *string `json:"sha256"` // as it is in the directory
	Locked *string `json:"locked"` // as the lock file has it
}

// compare holds a directory against a lock file's sums, by file name.
func compare(sums, lock map[string]string) []locked {
	names := map[string]bool{}
	for _, m := range []map[string]string{sums, lock} {
		for name := range m {
			names[name] = true
		}
	}
	list := []locked{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		l := locked{File: name, State: lockOK}
		if sum, ok := sums[name]; ok {
			l.SHA256 = &sum
		}
		if sum, ok := lock[name]; ok {
			l.Locked = &sum
		}
		switch {
		case l.SHA256 == nil:
			l.State = lockMissing
		case l.Locked == nil:
			l.State = lockNotLocked
		case *l.SHA256 != *l.Locked:
			l.State = lockChanged
		}
		list = append(list, l)
	}
	return list
}

// sumDir is what is in the directory now.
func sumDir(dir string) (map[string]string, error) {
	sums, err := plugins.SumDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, failf(ExitNotFound, "there is no plugin directory %s", dir)
	case err != nil:
		return nil, fmt.Errorf("read the plugins: %w", err)
	case len(sums) == 0:
		return nil, failf(ExitNotFound, "there are no plugins (airlock-isolation-NAME, airlock-runtime-NAME, airlock-revoker-NAME) in %s", dir)
	}
	return sums, nil
}

func lockCommand() *cobra.Command {
	var at lockPlaces
	cmd := &cobra.Command{
		Use: "lock [DIR]", Short: "write the lock file for the plugins as they are now", Args: cobra.MaximumNArgs(1),
		Long: `Write the lock file: the sha256 of every plugin in DIR (default: plugins.dir of
the configuration). The host then runs no other builds and no other plugins. It
is for somebody who trusts what is in DIR; what changes is printed.`,
		Example: "  airlock plugin lock\n  airlock plugin lock ./bin/plugins --lock ./plugins.lock.hcl",
	}
	at.flags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, file, err := at.find(args)
		if err != nil {
			return err
		}
		sums, err := sumDir(dir)
		if err != nil {
			return err
		}
		var before map[string]string
		old, oldErr := plugins.ReadLock(file)
		if oldErr == nil && old != nil {
			before = old.Sums
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // checksums are no secret
			return err
		}
		if err := plugins.WriteLock(file, sums); err != nil {
			return fmt.Errorf("write the lock file: %w", err)
		}
		if _, err := plugins.ReadLock(file); err != nil {
			return failf(ExitFailed, "the lock file is written, but the host will refuse it: %w", err)
		}
		list := compare(sums, before)
		w := cmd.OutOrStdout()
		if *asJSON {
			return showLocked(w, map[string]any{"dir": dir, "lock": file, "plugins": list})
		}
		if oldErr != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "the old lock file could not be used: %v\n", oldErr)
		}
		t := table{head: []string{"PLUGIN", "LOCK", "SHA256"}, wide: 2}
		words := map[string]string{lockOK: "unchanged", lockChanged: "changed", lockNotLocked: "added", lockMissing: "removed"}
		for _, l := range list {
			t.add(l.File, words[l.State], orDash(l.SHA256))
		}
		t.print(w)
		fmt.Fprintf(w, "\nwrote %s; a running host looks at it when it starts a plugin: airlock plugin reload NAME\n", file)
		return nil
	}
	return cmd
}

func verifyPluginsCommand() *cobra.Command {
	var at lockPlaces
	cmd := &cobra.Command{
		Use: "verify [DIR]", Short: "hold the plugins against the lock file", Args: cobra.MaximumNArgs(1),
		Long: `Hold the plugins in DIR (default: plugins.dir of the configuration) against the
lock file. It fails when one has changed, is not in the lock file, or is in it
and not in DIR. Exit code 2: there is no lock file, so the host enforces none.`,
		Example: "  airlock plugin verify\n  airlock plugin verify ./bin/plugins --lock ./plugins.lock.hcl --json",
	}
	at.flags(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, file, err := at.find(args)
		if err != nil {
			return err
		}
		lock, err := plugins.ReadLock(file)
		if err != nil {
			return failf(ExitFailed, "the lock file %s cannot be used, so no plugin may run: %w", file, err)
		}
		if lock == nil {
			return failf(ExitNotFound, "there is no lock file %s, so nothing is enforced; airlock plugin lock writes it", file)
		}
		sums, err := sumDir(dir)
		if err != nil {
			return err
		}
		list := compare(sums, lock.Sums)
		bad := 0
		t := table{head: []string{"PLUGIN", "STATE", "SHA256", "LOCKED"}, wide: 2}
		for _, l := range list {
			if l.State != lockOK {
				bad++
			}
			t.add(l.File, l.State, short(l.SHA256), short(l.Locked))
		}
		w := cmd.OutOrStdout()
		if *asJSON {
			err = showLocked(w, map[string]any{"dir": dir, "lock": file, "plugins": list, "ok": bad == 0})
		} else {
			t.print(w)
		}
		if err == nil && bad > 0 {
			err = failf(ExitFailed, "%d of %d plugins are not as %s has them; put the locked builds back, or run `airlock plugin lock` if you trust these", bad, len(list), file)
		}
		return err
	}
	return cmd
}

// showLocked prints {"dir","lock","plugins":[{"file","state","sha256",
// "locked"}]}, verify with "ok" beside it; lock's states are against the lock
// file as it was before.
func showLocked(w io.Writer, v map[string]any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return showJSON(w, text)
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// short is a digest as it is read by people.
func short(s *string) string {
	if s == nil || len(*s) < 16 {
		return orDash(s)
	}
	return (*s)[:16] + "…"
}
