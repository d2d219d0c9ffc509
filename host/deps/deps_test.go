package deps

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/airlock-host/airlock/"

// rules say, for a folder, which folders of the module its code may import
// beside itself. Test files are free, but for the ban on host/ below.
var rules = map[string][]string{
	"proto":                      {},
	"sdk":                        {"proto"},
	"plugins":                    {"sdk", "proto"},
	"config":                     {"proto"},
	"examples":                   {"proto", "sdk"},
	"host/internal/scaffold":     {},
	"host/internal/journal":      {},
	"host/internal/governance":   {"host/internal/journal"},
	"host/internal/mission":      {"host/internal/journal", "host/internal/governance"},
	"host/internal/filelock":     {},
	"host/internal/failpoint":    {"host/internal/journal"},
	"host/internal/jsontext":     {},
	"host/internal/heads":        {"host/internal/journal", "host/internal/filelock", "host/internal/failpoint"},
	"host/internal/heads/record": {"host/internal/journal"},
	"host/internal/evidence":     {"host/internal/journal", "host/internal/heads/record"},
	"host/internal/retention":    {"host/internal/journal", "host/internal/evidence", "host/internal/heads/record", "host/internal/mission", "host/internal/store", "host/internal/failpoint"},
	"host/cmd/airlock-verify":    {"host/internal/evidence", "host/internal/heads/record", "host/internal/version"},
	"host/internal/session":      {},
	"host/internal/screen":       {},
	"host/internal/ui":           {},
	"host/internal/manual":       {"docs"},
	"docs":                       {},
	"host/internal/result":       {},
	"host/internal/store":        {"host/internal/journal", "host/internal/workflow", "host/internal/filelock", "host/internal/failpoint"},
	"host/internal/workflow":     {},
	"host/internal/cells":        {"proto", "sdk/cell", "host/internal/store", "host/internal/result"},
	"host/internal/engine":       {"host/internal/failpoint", "host/internal/jsontext", "proto", "config", "sdk/cell", "host/internal/workflow", "host/internal/governance", "host/internal/mission", "host/internal/journal", "host/internal/store", "host/internal/cells", "host/internal/session", "host/internal/result"},
	"host/internal/gateway":      {},
	"host/internal/plugins":      {"proto", "sdk/plugin", "config"},
	"host/internal/executor":     {"host/internal/jsontext", "host/internal/engine", "host/internal/mission", "host/internal/store"},
	"host/internal/orchestrator": {},
	"host/internal/cellagent":    {"proto", "sdk/cell", "sdk/stage"},
	"host/cmd/airlock-cell":      {"host/internal/cellagent", "host/internal/version", "sdk/stage"},
	"host/internal/mcp":          {"host/internal/engine", "host/internal/governance", "host/internal/workflow"},
	"host/internal/api":          {"config", "host/internal/jsontext", "host/internal/engine", "host/internal/governance", "host/internal/mission", "host/internal/journal", "host/internal/store", "host/internal/session", "host/internal/screen", "host/internal/result", "host/internal/evidence", "host/internal/heads/record"},

	"sdk/governance":                {},
	"host/internal/api/apitest":     {"proto", "config", "host/internal/api", "host/internal/engine", "host/internal/governance", "host/internal/mission", "host/internal/journal", "host/internal/store", "host/internal/session", "host/internal/result", "host/internal/cells", "host/internal/heads/record"},
	"host/internal/governance/gate": {"host/internal/jsontext", "host/internal/governance", "host/internal/journal", "config"},
}

// banned are imports that nobody in a folder may have, tests included.
var banned = map[string]string{"plugins": "host", "sdk": "host", "proto": "host", "config": "host", "examples": "host"}

func TestDependencyRule(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		check(t, path, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

func check(t *testing.T, path, rel string) {
	t.Helper()
	folder := ruleFor(rel)
	if folder == "" {
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	test := strings.HasSuffix(rel, "_test.go") || strings.Contains(rel, "/testdata/")
	for _, imp := range f.Imports {
		name, err := strconv.Unquote(imp.Path.Value)
		if err != nil || !strings.HasPrefix(name, module) {
			continue
		}
		name = strings.TrimPrefix(name, module)
		if ban := banned[strings.Split(folder, "/")[0]]; ban != "" && within(name, ban) {
			t.Errorf("%s imports %s: nothing in %s may import %s", rel, name, folder, ban)
		}
		if !test && !within(name, folder) && !allowed(name, rules[folder]) {
			t.Errorf("%s imports %s, which the rule for %s does not allow", rel, name, folder)
		}
	}
}

// ruleFor finds the longest folder with a rule that holds the file.
func ruleFor(rel string) string {
	best := ""
	for folder := range rules {
		if within(rel, folder) && len(folder) > len(best) {
			best = folder
		}
	}
	return best
}

func allowed(name string, folders []string) bool {
	for _, f := range folders {
		if within(name, f) {
			return true
		}
	}
	return false
}

func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}
