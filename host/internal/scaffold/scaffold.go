// Package scaffold writes the directory of a new plugin: `airlock plugin new`.
// It imports the standard library only.
//
// The one idea: what it writes works at once. It compiles, its own test passes,
// and so do the checks of `airlock plugin test`; the author changes a good
// plugin instead of finishing a bad one.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed all:templates
var templates embed.FS

// sdkModule is the module of the SDK.
const sdkModule = "github.com/airlock-host/airlock"

// Kinds are the kinds of plugins that there are templates for.
func Kinds() []string { return []string{"isolation", "runtime", "revoker"} }

// Options say what to write.
type Options struct {
	Kind string // one of Kinds
	Name string // as in airlock-KIND-NAME
	// Module is the path of the Go module; empty: example.com/airlock-KIND-NAME.
	Module string
	// SDK is a checkout of Airlock to build against; empty: the published
	// module of this Version.
	SDK     string
	Version string
}

// File is the name of the plugin's executable.
func (o Options) File() string { return "airlock-" + o.Kind + "-" + o.Name }

// values are what the templates see.
type values struct {
	Options
	Requires []string // lines of go.mod
	Replace  string
}

// Write makes the directory, which must be empty or not exist.
func Write(dir string, o Options) error {
	if !slices.Contains(Kinds(), o.Kind) {
		return fmt.Errorf("there is no template for the kind %q; there are %s", o.Kind, strings.Join(Kinds(), ", "))
	}
	if ok, _ := regexp.MatchString(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`, o.Name); !ok || len(o.Name) > 40 {
		return fmt.Errorf("the name %q is not made of a-z, 0-9 and single dashes, at most 40 characters", o.Name)
	}
	if o.Module == "" {
		o.Module = "example.com/" + o.File()
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	v := values{Options: o}
	var sum []byte
	var err error
	if o.SDK != "" {
		if sum, err = v.useCheckout(); err != nil {
			return err
		}
	} else {
		v.Requires = []string{sdkModule + " " + published(o.Version)}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, from := range []string{"templates/shared", "templates/" + o.Kind} {
		if err := v.render(from, dir); err != nil {
			return err
		}
	}
	if sum != nil {
		return os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644)
	}
	return nil
}

// published is the version of the module that belongs to a build.
func published(version string) string {
	if ok, _ := regexp.MatchString(`^v?\d+\.\d+\.\d+$`, version); !ok {
		return "v0.1.0"
	}
	return "v" + strings.TrimPrefix(version, "v")
}

var (
	moduleLine  = regexp.MustCompile(`(?m)^module (\S+)$`)
	requireLine = regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+|\S+\.\S+) (v\S+)(?: // indirect)?$`)
)

// useCheckout builds against a directory: the requirements are the SDK's own,
// so that nothing has to be looked up. It answers its go.sum.
func (v *values) useCheckout() ([]byte, error) {
	dir, err := filepath.Abs(v.SDK)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("the SDK: %w", err)
	}
	if m := moduleLine.FindSubmatch(text); m == nil || string(m[1]) != sdkModule {
		return nil, fmt.Errorf("%s is not the module %s", dir, sdkModule)
	}
	v.Requires = []string{sdkModule + " v0.0.0"}
	for _, m := range requireLine.FindAllSubmatch(text, -1) {
		v.Requires = append(v.Requires, string(m[1])+" "+string(m[2])+" // indirect")
	}
	v.Replace = dir
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("the SDK: %w", err)
	}
	return sum, nil
}

// render writes every template of a directory, without its .tmpl.
func (v *values) render(from, to string) error {
	entries, err := templates.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := templates.ReadFile(from + "/" + e.Name())
		if err != nil {
			return err
		}
		t, err := template.New(e.Name()).Delims("<<", ">>").Parse(string(text))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return err
		}
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore"
		}
		if err := os.WriteFile(filepath.Join(to, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
