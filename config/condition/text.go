package condition

import (
	"fmt"
	"strconv"
	"strings"
)

// quote is a string as HCL writes it.
func quote(s string) string {
	s = strconv.Quote(s)
	s = strings.ReplaceAll(s, "${", "$${")
	return strings.ReplaceAll(s, "%{", "%%{")
}

// didYouMean is ` (did you mean "x"?)` for a candidate that differs in one
// character, or in two of a longer name.
func didYouMean(name string, candidates []string) string {
	best, distance := "", 2
	if len(name) > 4 {
		distance = 3
	}
	for _, c := range candidates {
		if d := editDistance(name, c); d < distance && d < max(len(c), len(name)) {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
