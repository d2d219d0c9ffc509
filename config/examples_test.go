package config

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestExamplesAreValidAndFormatted(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../examples/configs/questions.hcl", "../examples/configs/claude.hcl", "../examples/configs/several-files"} {
		opts := testOptions()
		opts.LookupEnv = func(n string) (string, bool) {
			v, ok := map[string]string{"AIRLOCK_DASHBOARD_TOKEN": goodToken, "ANTHROPIC_API_KEY": goodToken}[n]
			return v, ok
		}
		if _, diags := Load(path, opts); len(diags) != 0 {
			t.Errorf("%s: %s", path, allText(diags))
		}
		files, err := Files(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text := readTest(t, file)
			if out, diags := Fmt([]byte(text), file); diags.HasErrors() || string(out) != text {
				t.Errorf("%s is not in the usual layout", file)
			}
		}
	}
	// The smallest configuration of the documentation is one.
	_, rest, _ := strings.Cut(readTest(t, docFile), "```hcl\n")
	text, _, _ := strings.Cut(rest, "```")
	if _, diags := parse(t, text); len(diags) != 0 {
		t.Errorf("documentation: %s", allText(diags))
	}
	missions, err := filepath.Glob("../examples/missions/*.json")
	if err != nil || len(missions) == 0 {
		t.Fatalf("no missions: %v", err)
	}
	for _, file := range missions {
		var body struct {
			MissionID string `json:"mission_id"`
			Objective string `json:"objective"`
		}
		if err := json.Unmarshal([]byte(readTest(t, file)), &body); err != nil || body.MissionID == "" || body.Objective == "" {
			t.Errorf("%s: %v", file, err)
		}
	}
}
