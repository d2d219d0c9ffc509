package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// printable keeps text of others from doing things to a terminal: what does not
// print is escaped.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) && utf8.ValidString(s) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// showJSON prints an answer as it came, indented.
func showJSON(w io.Writer, text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(text), "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := w.Write(out.Bytes())
	return err
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print the host's answer as JSON")
}

// table is rows under a header.
type table struct {
	head []string
	rows [][]string
	// wide is the column that gives way when the table does not fit, and ids are
	// those that lose from their middle when that is not enough.
	wide int
	ids  []int
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// print writes the table; on a terminal it is made to fit.
func (t *table) print(w io.Writer) { t.fit(w, width(w)) }

// fit writes the table into some columns (0: as wide as it is).
func (t *table) fit(w io.Writer, limit int) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if limit > 0 {
		total := 2 * (len(widths) - 1)
		for _, n := range widths {
			total += n
		}
		if total > limit {
			total -= shrink(widths, t.wide, total-limit, max(utf8.RuneCountInString(t.head[t.wide]), 8))
			for _, i := range t.ids {
				total -= shrink(widths, i, total-limit, max(utf8.RuneCountInString(t.head[i]), 12))
			}
		}
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if slices.Contains(t.ids, i) {
				cell = middle(cell, widths[i])
			}
			cell = cut(cell, widths[i])
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// shrink takes up to some characters from a column, but not below least, and
// gives how many it took.
func shrink(widths []int, column, by, least int) int {
	by = max(min(by, widths[column]-least), 0)
	widths[column] -= by
	return by
}

// middle shortens text to n characters and keeps both of its ends.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n || n < 3 {
		return s
	}
	head := n / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// cut shortens text to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// width is how wide the terminal is; 0: it is none.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) { //nolint:gosec // a descriptor
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd())) //nolint:gosec // a descriptor
	if err != nil {
		return 0
	}
	return n
}

// ago is a time as people say it.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// line prints "name  value" with the values in one column; empty ones are left
// out.
func line(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "%-13s %s\n", name, printable(value))
	}
}
