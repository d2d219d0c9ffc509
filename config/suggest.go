package config

import (
	"fmt"
	"strconv"
)

// didYouMean is ` Did you mean "x"?` for the candidate nearest to name, or
// empty when none is near.
func didYouMean(name string, candidates []string) string {
	if s := nearest(name, candidates); s != "" {
		return fmt.Sprintf(`. Did you mean %q?`, s)
	}
	return ""
}

// nearest is the candidate within an edit distance of a third of its length (2
// for short ones), the nearest first, or empty.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 0
	if len(name) > 128 {
		return ""
	}
	for _, c := range candidates {
		limit := max(2, len(c)/3)
		if d := editDistance(name, c); d <= limit && d < max(len(c), len(name)) && (best == "" || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	return best
}

// Nearest is the candidate that was probably meant by name, or empty.
func Nearest(name string, candidates []string) string { return nearest(name, candidates) }

// editDistance counts insertions, deletions and replacements of runes.
func editDistance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	row := make([]int, len(rb)+1)
	for j := range row {
		row[j] = j
	}
	for i, ca := range ra {
		diagonal := row[0]
		row[0] = i + 1
		for j, cb := range rb {
			cost := diagonal
			if ca != cb {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(rb)]
}

// quote quotes a value of the configuration for a message, shortened.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		return strconv.Quote(string(r[:60])) + "…"
	}
	return strconv.Quote(s)
}
