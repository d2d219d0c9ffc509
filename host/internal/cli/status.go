package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) statusCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "status [TASK]", Short: "how the host is, or a task", Args: cobra.MaximumNArgs(1),
		Long: `Show how the host is: what it cannot do and why, its agents, plugins, missions
and questions. With TASK (or SIDECAR_ENDPOINT) show that task. --follow goes on:
with what happens to the task until it ends (its calls as proposed, blocked,
paused, suspended, executed, completed or failed), with the host's status
whenever it has changed. --json prints {"version","ready","agents","plugins",
"orchestrator","missions","questions"}, each as its route answers, or the task's
status; followed, a formatted snapshot after each change.`,
		Example: "  airlock status\n  airlock status --json | jq '.plugins[] | select(.state != \"ready\")'\n  airlock status m-abc123 --follow\n  SIDECAR_ENDPOINT=http://127.0.0.1:8122/tasks/order-task airlock status --follow --json",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on: with what changes of the host, or with the task's events until it ends")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		task, err := a.task(args)
		if err != nil {
			return err
		}
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		if task == "" {
			return c.hostStatus(cmd.Context(), cmd.OutOrStdout(), follow, *asJSON)
		}
		return c.taskStatus(cmd.Context(), cmd.OutOrStdout(), task, follow, *asJSON)
	}
	return cmd
}

// hostStatus is put together out of what the host's routes say.
type hostStatus struct {
	Version      string          `json:"version"`
	Ready        json.RawMessage `json:"ready"`
	Agents       json.RawMessage `json:"agents"`
	Plugins      json.RawMessage `json:"plugins"`
	Orchestrator json.RawMessage `json:"orchestrator"`
	Missions     *missions       `json:"missions"` // those that have not ended
	Questions    json.RawMessage `json:"questions"`
}

// hostFollow is how often a followed host's status is looked at.
const hostFollow = time.Second

// hostStatus prints the status, and with follow again whenever it reads
// otherwise.
func (c *client) hostStatus(ctx context.Context, w io.Writer, follow, asJSON bool) error {
	var last string
	for {
		st, err := c.readHost(ctx)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if asJSON {
			err = st.showJSON(&text)
		} else {
			err = st.show(&text, c.where, width(w))
		}
		if err != nil {
			return err
		}
		if now := text.String(); now != last {
			if last != "" && !asJSON {
				now = "\n" + time.Now().Format(time.DateTime) + "\n" + now
			}
			last = text.String()
			if _, err := io.WriteString(w, now); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(hostFollow):
		}
	}
}

// readHost asks the host's routes.
func (c *client) readHost(ctx context.Context) (*hostStatus, error) {
	var st hostStatus
	var live struct {
		Version string `json:"version"`
	}
	if _, err := c.get(ctx, "/livez", &live); err != nil {
		return nil, err
	}
	st.Version = live.Version
	var err error
	if st.Ready, err = c.readiness(ctx); err != nil {
		return nil, err
	}
	for path, into := range map[string]struct {
		member string
		v      *json.RawMessage
	}{"/api/v1/agents": {"agents", &st.Agents}, "/api/v1/plugins": {"plugins", &st.Plugins}, "/api/v1/hitl": {"questions", &st.Questions}} {
		var m map[string]json.RawMessage
		if _, err := c.get(ctx, path, &m); err != nil {
			return nil, err
		}
		*into.v = m[into.member]
	}
	if st.Orchestrator, err = c.call(ctx, http.MethodGet, "/api/v1/aiwg/status", nil); err != nil {
		return nil, err
	}
	if st.Missions, err = c.missions(ctx, url.Values{"live": {"1"}}, 0); err != nil {
		return nil, err
	}
	return &st, nil
}

func (st *hostStatus) showJSON(w io.Writer) error {
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return showJSON(w, text)
}

// readiness reads /readyz, whose 503 is an answer too.
func (c *client) readiness(ctx context.Context) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return nil, c.refused(resp)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}

// show words the status for a terminal of some columns (0: none).
func (st *hostStatus) show(w io.Writer, where string, columns int) error {
	var ready struct {
		Ready   bool     `json:"ready"`
		Store   string   `json:"store"`
		Run     string   `json:"run_dir"`
		Heads   string   `json:"heads"`
		Trouble []string `json:"trouble"`
		Prices  []string `json:"prices"`
	}
	var agents []agent
	var plugins []plugin
	var questions []question
	var orc struct {
		Configured    bool    `json:"configured"`
		Connected     bool    `json:"connected"`
		Endpoint      string  `json:"endpoint"`
		RegisterError *string `json:"executor_register_error"`
		LinkError     *string `json:"link_error"`
		Pending       int     `json:"outbox_pending"`
	}
	for v, raw := range map[any]json.RawMessage{&ready: st.Ready, &agents: st.Agents, &plugins: st.Plugins, &questions: st.Questions, &orc: st.Orchestrator} {
		if err := json.Unmarshal(raw, v); err != nil {
			return err
		}
	}
	line(w, "host", where)
	line(w, "version", st.Version)
	switch {
	case ready.Store != "":
		line(w, "ready", "NO: "+ready.Store)
	case ready.Run != "":
		line(w, "ready", "NO: "+ready.Run)
	case !ready.Ready:
		line(w, "ready", "NO")
	default:
		line(w, "ready", "yes")
	}
	line(w, "heads", ready.Heads)
	for _, t := range ready.Trouble {
		line(w, "TROUBLE", t)
	}
	for _, p := range ready.Prices {
		line(w, "price", p)
	}
	switch {
	case !orc.Configured:
		line(w, "orchestrator", "not configured")
	case orc.Connected:
		line(w, "orchestrator", "connected to "+orc.Endpoint)
	default:
		why := "not connected to " + orc.Endpoint
		for _, e := range []*string{orc.RegisterError, orc.LinkError} {
			if e != nil && *e != "" {
				why += ": " + *e
			}
		}
		line(w, "orchestrator", why)
	}
	if orc.Pending > 0 {
		line(w, "outbox", fmt.Sprintf("%d events wait for the orchestrator", orc.Pending))
	}
	line(w, "missions", fmt.Sprintf("%d have not ended", len(st.Missions.Missions)))
	if n := len(questions); n > 0 {
		line(w, "questions", fmt.Sprintf("%d wait for an answer: airlock hitl list", n))
	}
	showAgents(w, agents, columns)
	if len(plugins) > 0 {
		fmt.Fprintln(w)
	}
	showPlugins(w, plugins, columns)
	return nil
}

func showAgents(w io.Writer, agents []agent, columns int) {
	if len(agents) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{head: []string{"AGENT", "HEALTH", "RUNNING", "QUEUED", "ISOLATION", "RUNTIME", "NOTE"}, wide: 6}
	for _, a := range agents {
		health, note := "ok", strings.Join(slices.DeleteFunc(slices.Clone(a.Notes), unasked), "; ")
		if !a.Healthy {
			health, note = "NO", a.Reason
		}
		t.add(a.Name, health, fmt.Sprintf("%d/%d", a.Running, a.Slots), fmt.Sprintf("%d/%d", a.Queued, a.QueueLimit),
			strings.TrimPrefix(a.Isolation, "isolation."), strings.TrimPrefix(a.Runtime, "runtime."), note)
	}
	t.fit(w, columns)
}

// unasked says that a note is of a limit that nobody has set: that it is not
// enforced is what was asked for.
func unasked(note string) bool { return strings.HasSuffix(note, ": not-enforced:no limit was set") }
