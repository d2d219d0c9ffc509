package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// openFaults is how many rows of the table of faults have no test yet. It only
// goes down.
const openFaults = 0

// docs/proof.md names for every fault, threat and fault of other executors the
// tests that hold it; each of them is there.
func TestEveryFaultNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	there := testNames(t)
	left := map[string]int{"F": 32, "T": 6, "X": 13}
	row := regexp.MustCompile(`(?m)^\| ([FTX])([0-9]+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$`)
	open, seen := 0, map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		id := m[1] + m[2]
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		left[m[1]]--
		names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(m[3], -1)
		for _, name := range names {
			if !slices.Contains(there, name[1]) {
				t.Errorf("%s names %s, which does not exist", id, name[1])
			}
		}
		switch {
		case strings.Contains(m[3], "**open**"):
			open++
		case len(names) == 0:
			t.Errorf("%s names no test", id)
		}
	}
	for letter, n := range left {
		if n != 0 {
			t.Errorf("%d rows %s… too few", n, letter)
		}
	}
	if open != openFaults {
		t.Errorf("%d rows are open, %d are counted", open, openFaults)
	}
}
