package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDirectoriesThatClashAreRefused, with the place and both paths.
func TestDirectoriesThatClashAreRefused(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"as it should be":                {`data_dir = "DIR/data"` + "\n" + `run_dir = "DIR/run"`, ""},
		"names that only begin alike":    {`data_dir = "DIR/a"` + "\n" + `run_dir = "DIR/a-run"`, ""},
		"the archive in the data":        {`data_dir = "DIR/a"` + "\nretention {\n  archive = \"DIR/a/archive\"\n}", ""},
		"no machine's directory":         {`data_dir = "/var/lib/"`, `test.hcl:1 Not a directory of its own: data_dir: /var/lib belongs to the machine`},
		"below proc":                     {`run_dir = "/proc/1/x"`, `test.hcl:1 Not a directory of its own: run_dir: /proc/1/x belongs`},
		"the same":                       {`data_dir = "DIR/x"` + "\n" + `run_dir = "DIR/x"`, `test.hcl:2 Directories that clash: run_dir and data_dir are the same directory (DIR/x). Each has files of its own that the other would remove. Give run_dir another path.`},
		"the same through a link":        {`data_dir = "DIR/real/x"` + "\n" + `run_dir = "DIR/link/x"`, `run_dir and data_dir are the same directory (DIR/real/x)`},
		"one in the other":               {`data_dir = "DIR/x"` + "\n" + `run_dir = "DIR/x/run"`, `test.hcl:2 Directories that clash: data_dir is DIR/x, and run_dir is DIR/x/run, which lies in it.`},
		"the other in the one":           {`run_dir = "DIR/x"` + "\n" + `data_dir = "DIR/x/data"`, `test.hcl:2 Directories that clash: run_dir is DIR/x, and data_dir is DIR/x/data, which lies in it.`},
		"with a default":                 {`run_dir = "/var/lib/airlock"`, `test.hcl:1 Directories that clash: run_dir and data_dir are the same`},
		"in the default":                 {`data_dir = "/run/airlock/data"`, `test.hcl:1 Directories that clash: run_dir is /run/airlock, and data_dir is /run/airlock/data`},
		"plugins in the data":            {`data_dir = "DIR/x"` + "\nplugins {\n  dir = \"DIR/x/plugins\"\n}", `test.hcl:3 Directories that clash: data_dir is DIR/x, and plugins.dir is DIR/x/plugins`},
		"the plugins' directory":         {`run_dir = "/usr/lib/airlock/plugins"`, `test.hcl:1 Directories that clash: plugins.dir and run_dir are the same directory`},
		"the heads' directory":           {`data_dir = "/var/lib/airlock-heads"`, `test.hcl:1 Directories that clash: the directory of governance.head.file and data_dir are the same directory`},
		"the archive is the data":        {`data_dir = "DIR/x"` + "\nretention {\n  archive = \"DIR/x\"\n}", `test.hcl:3 Directories that clash: retention.archive and data_dir are the same`},
		"the archive goes with the boot": {"retention {\n  archive = \"/run/airlock/archive\"\n}", `run_dir is /run/airlock, and retention.archive is /run/airlock/archive, which lies in it. What is in run_dir goes`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			put := strings.NewReplacer("DIR", dir)
			_, diags := parse(t, put.Replace(c.text)+"\n"+strings.TrimPrefix(minimalText, "\n"))
			text := allText(diags)
			if c.want == "" {
				if diags.HasErrors() {
					t.Error(text)
				}
				return
			}
			if want := put.Replace(c.want); !strings.Contains(normal(text), want) {
				t.Errorf("got %s\nwant %s", normal(text), want)
			}
		})
	}
}

// normal takes the columns out of places.
func normal(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if place, rest, ok := strings.Cut(line, " "); ok {
			if at, _, cut := strings.Cut(place, ","); cut {
				lines[i] = at + " " + rest
			}
		}
	}
	return strings.Join(lines, "\n")
}
