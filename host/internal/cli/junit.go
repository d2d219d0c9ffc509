package cli

import (
	"encoding/xml"
	"os"
	"strings"

	"github.com/airlock-host/airlock/sdk/conformance"
)

// junitSuite is the checks of one plugin as CI systems read them.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string     `xml:"name,attr"`
	Class   string     `xml:"classname,attr"`
	Failure *junitNote `xml:"failure,omitempty"`
	Skipped *junitNote `xml:"skipped,omitempty"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
}

// writeJUnit writes a report as JUnit XML: what is not declared is skipped.
func writeJUnit(path string, r *conformance.Report) error {
	s := junitSuite{Name: r.Plugin, Tests: len(r.Checks), Failures: r.Count(conformance.Fail), Skipped: r.Count(conformance.NotDeclared)}
	for _, c := range r.Checks {
		one := junitCase{Name: c.Name, Class: r.Plugin}
		note := &junitNote{strings.Join(strings.Fields(c.Detail), " ")}
		switch c.Result {
		case conformance.Fail:
			one.Failure = note
		case conformance.NotDeclared:
			one.Skipped = note
		}
		s.Cases = append(s.Cases, one)
	}
	text, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644) //nolint:gosec // a report
}
