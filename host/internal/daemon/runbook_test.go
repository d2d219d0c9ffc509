package daemon

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever is called at night looks a code up and finds it.
func TestTheRunbookHasEveryCode(t *testing.T) {
	t.Parallel()
	page := read(t, "../../../docs/runbook.md")
	found := 0
	for pattern, files := range map[string]string{
		`coded\([^"\n]*"([a-z_]+)"`:            "../api/*.go",
		`code = "([a-z_]+)"`:                   "../api/problem.go",
		`Code[A-Za-z]+ += "([a-z_]+)"`:         "../governance/task.go",
		`(?m)^\t[A-Za-z]+ +Code = "([a-z_]+)"`: "../plugins/fault.go",
		`Reason: "([a-z_]+)"`:                  "../engine/*.go",
		`reason = "([a-z_]+)"`:                 "../engine/run.go",
	} {
		list, err := filepath.Glob(files)
		if err != nil || len(list) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range list {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
				found++
				if m[1] != "restored" && !strings.Contains(page, "`"+m[1]+"`") { // restored is a stop's, and means a restart of the host
					t.Errorf("docs/runbook.md does not tell of %s (%s)", m[1], file)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d codes were found: the patterns do not fit the source any more", found)
	}
}

// Every alert leads somewhere.
func TestTheRunbookHasEveryAlert(t *testing.T) {
	t.Parallel()
	page := read(t, "../../../docs/runbook.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, "../../../config/dist/alerts.yml"), -1)
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for _, a := range alerts {
		if !strings.Contains(page, a[1]) {
			t.Errorf("docs/runbook.md does not tell of the alert %s", a[1])
		}
	}
}
