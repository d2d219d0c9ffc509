// Command sbom prints the list of materials (CycloneDX 1.5, JSON) of built
// programs: the modules that the Go linker has put into them, by what each
// binary says of itself. It imports the standard library only. The one idea:
// what is listed is what is in the files, not what go.mod could have brought.
//
//	go run ./hack/sbom VERSION BINARY…
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION BINARY…")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version string, binaries []string) error {
	out := bom{Format: "CycloneDX", Spec: "1.5", Version: 1}
	out.Metadata.Component = component{Type: "application", Ref: "airlock", Name: "airlock", Version: version}
	all := dependency{Ref: "airlock"}
	libraries := map[string]component{}
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		out.Components = append(out.Components, component{Type: "application", Ref: name, Name: name, Version: version})
		all.DependsOn = append(all.DependsOn, name)
		of := dependency{Ref: name}
		add := func(c component) {
			c.Ref = c.PURL
			libraries[c.Ref] = c
			of.DependsOn = append(of.DependsOn, c.Ref)
		}
		goVersion := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
		add(component{Type: "library", Name: "std", Version: goVersion, PURL: "pkg:golang/std@" + goVersion})
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
			if m.Sum != "" {
				c.Properties = []property{{"golang:sum", m.Sum}}
			}
			add(c)
		}
		slices.Sort(of.DependsOn)
		out.Dependencies = append(out.Dependencies, of)
	}
	for _, c := range libraries {
		out.Components = append(out.Components, c)
	}
	slices.SortFunc(out.Components, func(a, b component) int { return strings.Compare(a.Ref, b.Ref) })
	slices.Sort(all.DependsOn)
	out.Dependencies = append(out.Dependencies, all)
	slices.SortFunc(out.Dependencies, func(a, b dependency) int { return strings.Compare(a.Ref, b.Ref) })
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}
