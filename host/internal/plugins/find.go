package plugins

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/config"
)

// Found is an executable in the plugin directory whose name is that of a
// plugin.
type Found struct {
	File string // "airlock-isolation-docker", the name in the lock file
	Kind string // config.KindIsolation and so on
	Name string // "docker"
	Path string
}

// FileName is the name of a plugin's executable.
func FileName(kind, name string) string { return "airlock-" + kind + "-" + name }

// Find lists the plugins in a directory, by file name. It looks at names only.
func Find(dir string) ([]Found, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, e := range entries {
		for _, kind := range []string{config.KindIsolation, config.KindRuntime, config.KindRevoker, config.KindPolicy} {
			name, ok := strings.CutPrefix(e.Name(), FileName(kind, ""))
			if ok && validName(name) && !e.IsDir() {
				found = append(found, Found{File: e.Name(), Kind: kind, Name: name, Path: filepath.Join(dir, e.Name())})
			}
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.File, b.File) })
	return found, nil
}

// locate is the executable of an instance. The name comes from the config and
// must not lead out of the directory.
func locate(dir string, spec config.Instance) (Found, *Fault) {
	file := FileName(spec.Kind, spec.Driver)
	f := Found{File: file, Kind: spec.Kind, Name: spec.Driver, Path: filepath.Join(dir, file)}
	if !validName(spec.Driver) {
		return f, faultf(NotFound, "%q is no plugin name", spec.Driver).
			advise("use lower-case letters, digits, - and _")
	}
	if _, err := os.Stat(f.Path); err != nil {
		if os.IsNotExist(err) {
			return f, faultf(NotFound, "there is no executable %s in %s%s", file, dir, meant(dir, spec)).
				advise("install the package %s, or the plugin's executable by hand, or correct plugins.dir", file)
		}
		return f, faultf(NotFound, "%v", err)
	}
	return f, nil
}

// meant is the plugin of the same kind whose name is nearest, as a question; empty
// where none is near.
func meant(dir string, spec config.Instance) string {
	found, err := Find(dir)
	if err != nil {
		return ""
	}
	var names []string
	for _, f := range found {
		if f.Kind == spec.Kind {
			names = append(names, f.Name)
		}
	}
	if near := config.Nearest(spec.Driver, names); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

func validName(name string) bool {
	ok, err := regexp.MatchString(`^[a-z0-9][a-z0-9_-]{0,63}$`, name)
	return err == nil && ok
}
