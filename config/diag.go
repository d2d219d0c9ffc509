package config

import (
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// noSnippet is the Extra of a diagnostic whose source line may hold a secret.
type noSnippet struct{ inner any }

// UnwrapDiagnosticExtra is for hcl.DiagnosticExtra.
func (n noSnippet) UnwrapDiagnosticExtra() any { return n.inner }

func hideSnippets(diags hcl.Diagnostics) {
	for _, d := range diags {
		d.Extra = noSnippet{inner: d.Extra}
		d.Expression, d.EvalContext = nil, nil
	}
}

func snippetHidden(d *hcl.Diagnostic) bool {
	_, hidden := d.Extra.(noSnippet)
	return hidden
}

// WriteDiagnostics writes diagnostics for a person: what, file and line, the
// line itself, what to do. width 0 does not wrap. Lines that may hold a secret
// are not shown.
func WriteDiagnostics(w io.Writer, diags hcl.Diagnostics, src *Sources, width uint, colour bool) error {
	var files map[string]*hcl.File
	if src != nil {
		files = src.files
	}
	shown := hcl.NewDiagnosticTextWriter(w, files, width, colour)
	hidden := hcl.NewDiagnosticTextWriter(w, nil, width, colour)
	for _, d := range diags {
		to := shown
		if snippetHidden(d) {
			to = hidden
		}
		if err := to.WriteDiagnostic(d); err != nil {
			return err
		}
	}
	return nil
}

// DiagnosticJSON is one diagnostic for programs.
type DiagnosticJSON struct {
	Severity string     `json:"severity"` // "error" | "warning"
	Summary  string     `json:"summary"`
	Detail   string     `json:"detail"`
	Range    *RangeJSON `json:"range,omitempty"`
	Snippet  string     `json:"snippet,omitempty"` // the first line of the range
}

// RangeJSON is a place in a file; lines and columns count from 1, the end is
// exclusive.
type RangeJSON struct {
	Filename string  `json:"filename"`
	Start    PosJSON `json:"start"`
	End      PosJSON `json:"end"`
}

// PosJSON is a position in a file.
type PosJSON struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// ValidationJSON is the answer of `airlock validate --json`.
type ValidationJSON struct {
	Valid       bool             `json:"valid"`
	Errors      int              `json:"error_count"`
	Warnings    int              `json:"warning_count"`
	Diagnostics []DiagnosticJSON `json:"diagnostics"`
}

// DiagnosticsJSON is diagnostics for programs.
func DiagnosticsJSON(diags hcl.Diagnostics, src *Sources) ValidationJSON {
	out := ValidationJSON{Valid: !diags.HasErrors(), Diagnostics: []DiagnosticJSON{}}
	for _, d := range diags {
		j := DiagnosticJSON{Severity: "error", Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			j.Severity = "warning"
			out.Warnings++
		} else {
			out.Errors++
		}
		if d.Subject != nil {
			j.Range = &RangeJSON{Filename: d.Subject.Filename, Start: PosJSON(d.Subject.Start), End: PosJSON(d.Subject.End)}
			if src != nil && !snippetHidden(d) {
				j.Snippet = src.line(*d.Subject)
			}
		}
		out.Diagnostics = append(out.Diagnostics, j)
	}
	return out
}

// line is the source line that a range starts on.
func (s *Sources) line(r hcl.Range) string {
	file := s.files[r.Filename]
	if file == nil || r.Start.Byte > len(file.Bytes) {
		return ""
	}
	start := strings.LastIndexByte(string(file.Bytes[:r.Start.Byte]), '\n') + 1
	line, _, _ := strings.Cut(string(file.Bytes[start:]), "\n")
	return strings.TrimSuffix(line, "\r")
}
