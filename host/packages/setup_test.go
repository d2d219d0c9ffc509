package packages

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/airlock-host/airlock/plugins/isolation/qemukvm/qemutest"
)

// manifest is what setup.aiwg.yaml may hold.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		Version     string `yaml:"version"`
		InstallType string `yaml:"install_type"`
	} `yaml:"metadata"`
	Spec struct {
		Platforms []struct {
			OS      string   `yaml:"os"`
			Distros []string `yaml:"distros"`
			Arch    []string `yaml:"arch"`
			Shell   string   `yaml:"shell"`
		} `yaml:"platforms"`
		Params        []param `yaml:"params"`
		Prerequisites []struct {
			Name        string `yaml:"name"`
			Detect      string `yaml:"detect"`
			InstallHint string `yaml:"install_hint"`
		} `yaml:"prerequisites"`
		Steps    []setupStep `yaml:"steps"`
		Recovery []struct {
			ID    string      `yaml:"id"`
			Steps []setupStep `yaml:"steps"`
		} `yaml:"recovery"`
		Briefing struct {
			Success   string   `yaml:"success"`
			NextSteps []string `yaml:"next_steps"`
		} `yaml:"briefing"`
	} `yaml:"spec"`
}

type param struct {
	Name        string   `yaml:"name"`
	Type        string   `yaml:"type"`
	Required    bool     `yaml:"required"`
	Choices     []string `yaml:"choices"`
	Default     *string  `yaml:"default"`
	Description string   `yaml:"description"`
}

type setupStep struct {
	ID        string   `yaml:"id"`
	Type      string   `yaml:"type"`
	Script    string   `yaml:"script"`
	Message   string   `yaml:"message"`
	OnDeny    string   `yaml:"on_deny"`
	OnFail    string   `yaml:"on_fail"`
	Params    []string `yaml:"params"`
	Verify    string   `yaml:"verify"`
	DependsOn []string `yaml:"depends_on"`
}

func readManifest(t *testing.T) manifest {
	t.Helper()
	text, err := os.ReadFile("../../setup.aiwg.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// plan has the scripts one a line, for testdata/guest.sh.
func (m manifest) plan() string {
	var lines strings.Builder
	for _, s := range m.Spec.Steps {
		if s.Type == "script" {
			verify := s.Verify
			if verify == "" {
				verify = "-"
			}
			lines.WriteString(strings.Join([]string{s.ID, s.Script, strings.Join(s.Params, ","), verify}, "|") + "\n")
		}
	}
	return lines.String()
}

// The manifest says what there is: each step has its script, each script its
// step, a parameter that a script reads is one that its step declares, and
// nothing is changed before the plan was told and agreed to.
func TestSetupManifest(t *testing.T) {
	t.Parallel()
	m := readManifest(t)
	if m.APIVersion != "setup.aiwg.io/v1" || m.Kind != "SetupManifest" || m.Metadata.Name != "airlock" {
		t.Errorf("%s %s %s", m.APIVersion, m.Kind, m.Metadata.Name)
	}
	params := map[string]param{}
	for _, p := range m.Spec.Params {
		if params[p.Name] = p; p.Description == "" || p.Required == (p.Default != nil) || (p.Type == "choice") != (len(p.Choices) > 0) {
			t.Errorf("parameter %s: %+v", p.Name, p)
		}
	}
	steps := slices.Clone(m.Spec.Steps)
	recoveries := map[string]bool{}
	for _, r := range m.Spec.Recovery {
		recoveries[r.ID] = true
		steps = append(steps, r.Steps...)
	}
	seen, scripts := map[string]bool{}, map[string]bool{"../../setup/lib.sh": true}
	for _, s := range steps {
		for _, before := range s.DependsOn {
			if !seen[before] {
				t.Errorf("step %s needs %s, which does not come before it", s.ID, before)
			}
		}
		if seen[s.ID] = true; s.OnFail != "" && !recoveries[s.OnFail] {
			t.Errorf("step %s: there is no recovery %s", s.ID, s.OnFail)
		}
		switch s.Type {
		case "ask":
			if s.Message == "" || s.OnDeny != "abort" {
				t.Errorf("step %s: %+v", s.ID, s)
			}
			continue
		case "script":
		default:
			t.Errorf("step %s is of type %q", s.ID, s.Type)
		}
		if (s.ID == "install" || s.ID == "configure") && !seen["approve"] {
			t.Errorf("step %s comes before anybody was asked", s.ID)
		}
		file := "../../" + s.Script
		scripts[file] = true
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range s.Params {
			if params[p].Name == "" {
				t.Errorf("step %s: there is no parameter %s", s.ID, p)
			}
		}
		for _, word := range regexp.MustCompile(`(?:\$\{?|need )([A-Z]{2,})`).FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(s.Params, word[1]) {
				t.Errorf("step %s: %s reads %s, which it is not given", s.ID, s.Script, word[1])
			}
		}
	}
	files, err := filepath.Glob("../../setup/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !scripts[file] {
			t.Errorf("%s belongs to no step", file)
		}
	}
}

// Each choice makes a configuration that airlock takes.
func TestSetupWritesWhatAirlockTakes(t *testing.T) {
	t.Parallel()
	bin, err := binDir()
	need(t, err)
	vm, err := qemutest.Build()
	need(t, err)
	for isolation, image := range map[string]string{"host-supervisor": "", "docker": "debian:bookworm-slim", "qemu-kvm": vm.Dir} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dir, network := t.TempDir(), "open"
			if isolation == "qemu-kvm" {
				network = "none"
			}
			output(t, filepath.Join(bin, "airlock"), "init", filepath.Join(dir, "airlock.hcl"))
			cmd := exec.Command("sh", "-euc", `. ../../setup/lib.sh; edited "$DIR/airlock.hcl" "$DIR" 1234`)
			cmd.Env = append(os.Environ(), "DIR="+dir, "ISOLATION="+isolation, "NETWORK="+network, "WORKSPACE=/srv/work", "IMAGE="+image)
			text, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			for _, want := range []string{"isolation." + isolation + ".host\n", `isolation "` + isolation + `" "host" {`, `source = "/srv/work"`, `mode   = "copy"`, `mode = "` + network + `"`, "[1234]", "/etc/airlock/operator.token"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("it lacks %q", want)
				}
			}
			if n := strings.Count(string(text), `isolation "`); n != 1 {
				t.Errorf("%d isolation blocks", n)
			}
			// To validate it here, its places are put where this test has them.
			file := filepath.Join(dir, "edited.hcl")
			here := strings.NewReplacer("/etc/airlock", dir, "/usr/lib/airlock/plugins", filepath.Join(bin, "plugins"), "/srv/work", dir).Replace(string(text))
			if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
				t.Fatal(err)
			}
			said, err := exec.Command(filepath.Join(bin, "airlock"), "validate", file).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s\n%s", err, said, here)
			}
		})
	}
}
