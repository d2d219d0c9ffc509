package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use: "top", Short: "the missions that live, as they change", Args: cobra.NoArgs,
		Long: `Show the host and its live missions, and go on until ctrl-c. What waits for a
human comes first. Where the output is no terminal, or with --once, it is printed
once. --json prints what "airlock status --json" prints.`,
		Example: "  airlock top\n  airlock top --once",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "how often it looks")
	cmd.Flags().BoolVar(&once, "once", false, "once only")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		if every < 100*time.Millisecond {
			return failf(ExitFailed, "--interval must be at least 100ms")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return c.top(ctx, cmd.OutOrStdout(), every, once || *asJSON, *asJSON)
	})
	return cmd
}

// top draws until the context ends.
func (c *client) top(ctx context.Context, w io.Writer, every time.Duration, once, asJSON bool) error {
	columns := width(w)
	for {
		st, err := c.readHost(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // ctrl-c is how it ends
			}
			return err
		}
		if asJSON {
			return st.showJSON(w)
		}
		var text bytes.Buffer
		if err := st.drawTop(&text, columns, time.Now()); err != nil {
			return err
		}
		if once || columns == 0 {
			_, err := w.Write(text.Bytes())
			return err
		}
		// Home, every line to its end, and what is below away: nothing flickers.
		screen := "\x1b[H" + strings.ReplaceAll(text.String(), "\n", "\x1b[K\n") + "\x1b[J"
		if _, err := io.WriteString(w, screen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		columns = width(w)
	}
}

// drawTop words the host for a terminal of some columns (0: none).
func (st *hostStatus) drawTop(w io.Writer, columns int, now time.Time) error {
	var ready struct {
		Ready   bool     `json:"ready"`
		Trouble []string `json:"trouble"`
	}
	var agents []agent
	for v, raw := range map[any]json.RawMessage{&ready: st.Ready, &agents: st.Agents} {
		if err := json.Unmarshal(raw, v); err != nil {
			return err
		}
	}
	list := make([]mission, len(st.Missions.Missions))
	states := map[string]int{}
	var cost float64
	for i, raw := range st.Missions.Missions {
		if err := json.Unmarshal(raw, &list[i]); err != nil {
			return err
		}
		states[list[i].State]++
		cost += list[i].CostUSD
	}
	say := fmt.Sprintf("airlock %s  %s", st.Version, now.Format(time.TimeOnly))
	if !ready.Ready {
		say += "  NOT READY"
	}
	for _, state := range []string{"running", "hitl-required", "paused", "assigned", "suspended"} {
		if n := states[state]; n > 0 {
			say += fmt.Sprintf("  %s %d", state, n)
		}
	}
	if cost > 0 {
		say += fmt.Sprintf("  USD %.2f", cost)
	}
	for _, text := range append([]string{say}, ready.Trouble...) {
		if columns > 0 {
			text = cut(text, columns)
		}
		fmt.Fprintln(w, printable(text))
	}
	for _, g := range agents {
		text := fmt.Sprintf("%s  %d/%d running, %d waiting", g.Name, g.Running, g.Slots, g.Queued)
		if !g.Healthy {
			text += "  NO: " + g.Reason
		}
		if columns > 0 {
			text = cut(text, columns)
		}
		fmt.Fprintln(w, printable(text))
	}
	fmt.Fprintln(w)
	t := table{head: []string{"MISSION", "STATE", "AGENT", "AGE", "COST", "TOKENS", "DOES"}, wide: 6, ids: []int{0, 2}}
	for _, waits := range []bool{true, false} { // for a human first
		for i := range list {
			m := &list[i]
			if (m.WaitingFor != "" || m.State == "hitl-required") != waits {
				continue
			}
			does := strings.TrimSpace(m.Objective)
			if p := m.Progress; p != nil && p.Summary != "" {
				does = p.Summary
			}
			if m.WaitingFor != "" {
				does = "waits for " + m.WaitingFor
			}
			t.add(m.MissionID, m.State, m.Agent, ago(now, m.CreatedAt), fmt.Sprintf("%.2f", m.CostUSD), fmt.Sprint(m.Tokens), does)
		}
	}
	if len(t.rows) == 0 {
		fmt.Fprintln(w, "no mission lives")
		return nil
	}
	t.fit(w, columns)
	return nil
}
