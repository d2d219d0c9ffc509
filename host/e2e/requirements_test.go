package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// openRequirements is how many rows of the table have no test yet. It only goes
// down.
const openRequirements = 0

// docs/governance.md maps every requirement of seed 003 to the test that holds
// it; each of those tests is there.
func TestEveryRequirementNamesATestThatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/governance.md")
	if err != nil {
		t.Fatal(err)
	}
	there := testNames(t)
	counts := map[string]int{"J": 21, "F": 8, "O": 14, "C": 9, "E": 4, "A": 7, "D": 7, "V": 7, "X": 5, "U": 6, "M": 4, "T": 13}
	row := regexp.MustCompile("(?m)^\\| ([A-Z])([0-9]+) \\| .+ \\| (?:`(Test[A-Za-z0-9_]+)`|\\*\\*(open)\\*\\*) \\|$")
	open, seen := 0, map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		id := m[1] + m[2]
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		counts[m[1]]--
		switch {
		case m[4] != "":
			open++
		case !slices.Contains(there, m[3]):
			t.Errorf("%s names %s, which does not exist", id, m[3])
		}
	}
	for letter, n := range counts {
		if n != 0 {
			t.Errorf("%d rows %s… too few", n, letter)
		}
	}
	if open != openRequirements {
		t.Errorf("%d rows are open, %d are counted", open, openRequirements)
	}
}

// testNames are the names of the repository's tests.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "dist") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
