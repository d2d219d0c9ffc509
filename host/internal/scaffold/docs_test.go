package scaffold_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/plugin-authors.md are run as they stand.
func TestPluginAuthorsGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "plugin-authors.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 8 {
		t.Fatalf("the guide has %d blocks of commands only", len(blocks))
	}
	var script strings.Builder
	for _, b := range blocks {
		script.WriteString(b[1])
	}
	out := in(t, t.TempDir(), "bash", "-euxo", "pipefail", "-c", script.String())
	if n := strings.Count(out, " 0 failed, "); n < 4 {
		t.Errorf("%d scorecards without a failure are in the output:\n%s", n, out)
	}
}
