package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) debugCommand() *cobra.Command {
	return group(&cobra.Command{Use: "debug", Short: "what a person who helps you needs to know"}, a.bundleCommand())
}

func (a *app) bundleCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "bundle", Short: "collect how the host is into one file, without secrets", Args: cobra.NoArgs,
		Long: `Collect how the host is into one .tar.gz that can be sent to somebody who helps:
readiness, agents, plugins, the configuration, the last missions, what waits for a
human, the link to the orchestrator, metrics, and what kind of machine it is.

No secret goes in, and nothing that missions say: no token, no key, no objective,
no prompt, no argument of a tool call, no output. The bundle has a file of what is
in it; look through it before you send it.`,
		Example: "  airlock debug bundle\n  airlock debug bundle -o /tmp/airlock-debug.tar.gz",
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the file (default: airlock-debug-TIME.tar.gz here); - is standard output")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		now := time.Now().UTC()
		text, err := c.bundle(cmd.Context(), a.version, now)
		if err != nil {
			return err
		}
		if out == "-" {
			_, err := cmd.OutOrStdout().Write(text)
			return err
		}
		if out == "" {
			out = "airlock-debug-" + now.Format("20060102T150405Z") + ".tar.gz"
		}
		f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), out)
		return nil
	})
	return cmd
}

// part is one file of a bundle: what of a route's answer goes in.
type part struct {
	file, path string
	keep       func(raw []byte) ([]byte, error)
}

func bundleParts() []part {
	return []part{
		{"livez.json", "/livez", whole},
		{"readyz.json", "/readyz", whole},
		{"agents.json", "/api/v1/agents", members("agents", "name", "isolation", "runtime", "healthy", "reason", "capabilities", "slots", "running", "queued", "queue_limit", "warm", "notes")},
		{"plugins.json", "/api/v1/plugins", members("plugins", "ref", "kind", "driver", "file", "version", "state", "code", "reason", "pid", "sha256", "restarts", "last_exit", "since", "started_at", "retry_at", "capabilities", "features", "contracts")},
		{"missions.json", "/api/v1/missions?limit=100", members("missions", "mission_id", "origin", "agent", "isolation", "runtime", "state", "state_reason", "waiting_for", "exit_code", "created_at", "started_at", "ended_at", "cost_usd", "tokens")},
		{"questions.json", "/api/v1/hitl", members("questions", "hitl_id", "mission_id", "source", "asked_at", "expires_at")},
		{"orchestrator.json", "/api/v1/aiwg/status", whole},
		{"config.json", "/api/v1/config", whole},
		{"metrics.txt", "/metrics", whole},
	}
}

func whole(raw []byte) ([]byte, error) { return raw, nil }

// members keeps these members of each object of a list, and nothing else.
func members(list string, keep ...string) func([]byte) ([]byte, error) {
	return func(raw []byte) ([]byte, error) {
		var answer map[string]json.RawMessage
		if err := json.Unmarshal(raw, &answer); err != nil {
			return nil, err
		}
		var rows []map[string]json.RawMessage
		if err := json.Unmarshal(answer[list], &rows); err != nil {
			return nil, err
		}
		out := make([]map[string]json.RawMessage, len(rows))
		for i, row := range rows {
			out[i] = map[string]json.RawMessage{}
			for _, name := range keep {
				if v, ok := row[name]; ok {
					out[i][name] = v
				}
			}
		}
		return json.MarshalIndent(map[string]any{list: out}, "", "  ")
	}
}

// credentials are what a URL may carry and a bundle may not: before the host,
// and in the query.
var credentials = regexp.MustCompile(`(://)[^/\s"@]*(@)|([?&][^=\s"&]*(?i:token|key|secret|sig|password)[^=\s"&]*=)[^&\s"]*`)

// bundle collects everything; what cannot be read is told in its place.
func (c *client) bundle(ctx context.Context, version string, now time.Time) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tw := tar.NewWriter(zip)
	var index strings.Builder
	fmt.Fprintf(&index, "airlock debug bundle, %s\nThere are no secrets, objectives, prompts, arguments or output in it.\n\n", now.Format(time.RFC3339))
	add := func(name string, text []byte, note string) error {
		fmt.Fprintf(&index, "%-20s %8d bytes  %s\n", name, len(text), note)
		h := &tar.Header{Name: "airlock-debug/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: now}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(text)
		return err
	}
	for _, p := range bundleParts() {
		text, err := c.read(ctx, p.path)
		if err == nil {
			text, err = p.keep(text)
		}
		note := p.path
		if err != nil {
			var e *exitError
			if p.file == "livez.json" || errors.As(err, &e) && e.code == ExitNotAllowed && p.file == "agents.json" {
				return nil, err // there is no host, or it takes no answer from us
			}
			text, note = []byte(err.Error()+"\n"), p.path+" could not be read"
		}
		if err := add(p.file, credentials.ReplaceAll(text, []byte("${1}${3}(not-shown)${2}")), note); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string][]byte{"machine.txt": machine(version)} {
		if err := add(name, text, "of this program and machine"); err != nil {
			return nil, err
		}
	}
	if err := add("README.txt", []byte(index.String()), "this list"); err != nil {
		return nil, err
	}
	if err := errors.Join(tw.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// read is an answer as it came; a 503 of /readyz is one too.
func (c *client) read(ctx context.Context, path string) ([]byte, error) {
	if path == "/readyz" {
		return c.readiness(ctx)
	}
	resp, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(io.LimitReader(resp.Body, 32<<20))
}

// machine tells of the machine that this program runs on.
func machine(version string) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, "airlock %s, %s, %s/%s, %d cpus\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, file := range []string{"/etc/os-release", "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/memory", "/proc/pressure/io", "/sys/fs/cgroup/cgroup.controllers"} {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error() + "\n")
		}
		fmt.Fprintf(&out, "\n== %s\n%s", file, text)
	}
	return []byte(out.String())
}
