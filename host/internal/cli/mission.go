package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) missionCommand() *cobra.Command {
	return group(&cobra.Command{Use: "mission", Short: "dispatch missions and work with them"}, a.dispatchCommand(), a.planCommand(), a.listCommand(), a.showCommand(), a.logsCommand(), a.attachCommand(), a.filesCommand(),
		a.killCommand(), a.verbCommand("pause", "hold a mission: nothing of it runs until it is resumed"),
		a.verbCommand("resume", "let a paused mission go on"))
}

func (a *app) listCommand() *cobra.Command {
	var states []string
	var agentName string
	var live, every, whole bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list missions, newest first", Args: cobra.NoArgs,
		Example: "  airlock mission list --live --no-trunc\n  airlock mission list --state failed,aborted --agent agent-01 --json",
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&states, "state", nil, "assigned, running, hitl-required, paused, suspended, done, failed or aborted")
	f.StringVar(&agentName, "agent", "", "of this agent only")
	f.BoolVar(&live, "live", false, "only those that have not ended")
	f.IntVar(&limit, "limit", 50, "how many at most")
	f.BoolVar(&whole, "no-trunc", false, "nothing shortened, however wide it gets")
	f.BoolVar(&every, "all", false, "all of them, whatever the limit")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		if every {
			limit = 0
		} else if limit < 1 {
			return failf(ExitFailed, "--limit must be at least 1")
		}
		q := url.Values{}
		if len(states) > 0 {
			q.Set("state", strings.Join(states, ","))
		}
		if agentName != "" {
			q.Set("agent", agentName)
		}
		if live {
			q.Set("live", "1")
		}
		list, err := c.missions(cmd.Context(), q, limit)
		if err != nil {
			return err
		}
		if *asJSON {
			text, err := json.Marshal(list)
			if err != nil {
				return err
			}
			return showJSON(cmd.OutOrStdout(), text)
		}
		columns := width(cmd.OutOrStdout())
		if whole {
			columns = 0
		}
		if len(list.Missions) == 0 && agentName != "" {
			fmt.Fprintln(cmd.OutOrStdout(), c.noMissionsOf(cmd.Context(), agentName))
			return nil
		}
		return showMissions(cmd.OutOrStdout(), list, columns)
	})
	return cmd
}

// noMissionsOf says that an agent has none, and whether there is such an agent at
// all. One that a reload took away may have had missions, so it is no error.
func (c *client) noMissionsOf(ctx context.Context, name string) string {
	text := fmt.Sprintf("no missions of agent %q match", name)
	names := make([]string, 0, 8)
	for _, w := range agentNames(ctx, c) {
		names = append(names, strings.SplitN(w, "\t", 2)[0])
	}
	if len(names) == 0 || slices.Contains(names, name) {
		return text
	}
	return printable(fmt.Sprintf("%s; there is no agent of this name now, there are: %s", text, strings.Join(names, ", ")))
}

// missions reads pages until limit is reached (0: all of them).
func (c *client) missions(ctx context.Context, q url.Values, limit int) (*missions, error) {
	out := &missions{Missions: []json.RawMessage{}}
	for {
		size := 100
		if limit > 0 {
			size = min(size, limit-len(out.Missions))
		}
		q.Set("limit", fmt.Sprint(size))
		var page missions
		if _, err := c.get(ctx, "/api/v1/missions?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		out.Missions = append(out.Missions, page.Missions...)
		out.Next = page.Next
		if page.Next == nil || limit > 0 && len(out.Missions) >= limit {
			return out, nil
		}
		q.Set("cursor", *page.Next)
	}
}

// showMissions prints a table that fits into some columns (0: as wide as it
// is). An id that is shortened keeps both ends: --no-trunc and --json show it.
func showMissions(w io.Writer, list *missions, columns int) error {
	if len(list.Missions) == 0 {
		fmt.Fprintln(w, `no missions; airlock mission dispatch "echo hello" starts one`)
		return nil
	}
	t := table{head: []string{"MISSION", "STATE", "AGENT", "AGE", "OBJECTIVE"}, wide: 4, ids: []int{0, 2}}
	now := time.Now()
	for _, raw := range list.Missions {
		var m mission
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		state := m.State
		if m.ExitCode != nil {
			state = fmt.Sprintf("%s (%d)", state, *m.ExitCode)
		} else if m.WaitingFor != "" {
			state = fmt.Sprintf("%s (%s)", state, m.WaitingFor)
		}
		t.add(m.MissionID, state, m.Agent, ago(now, m.CreatedAt), strings.TrimSpace(m.Objective))
	}
	t.fit(w, columns)
	if list.Next != nil {
		fmt.Fprintln(w, "there are more: --all or --limit")
	}
	return nil
}

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show MISSION", Short: "show one mission", Args: cobra.ExactArgs(1),
		Example: "  airlock mission show m-abc123",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		var m mission
		text, err := c.get(cmd.Context(), "/api/v1/missions/"+segment(args[0]), &m)
		if err != nil {
			return named(err, "mission", args[0])
		}
		if *asJSON {
			return showJSON(cmd.OutOrStdout(), text)
		}
		showMission(cmd.OutOrStdout(), &m)
		return nil
	})
	return cmd
}

func showMission(w io.Writer, m *mission) {
	line(w, "mission", m.MissionID)
	line(w, "state", m.State)
	line(w, "reason", m.StateReason)
	line(w, "error", m.Error)
	line(w, "waiting for", m.WaitingFor)
	if m.ExitCode != nil {
		line(w, "exit code", fmt.Sprint(*m.ExitCode))
	}
	line(w, "objective", strings.TrimSpace(m.Objective))
	line(w, "agent", m.Agent)
	line(w, "isolation", m.Isolation)
	line(w, "runtime", m.Runtime)
	line(w, "origin", m.Origin)
	line(w, "session", m.PTYSessionID)
	line(w, "checkpoint", m.CheckpointID)
	if p := m.Progress; p != nil {
		text := p.Phase
		if p.Pct != nil {
			text = strings.TrimSpace(fmt.Sprintf("%s %.0f%%", text, *p.Pct))
		}
		line(w, "progress", strings.TrimSpace(text+" "+p.Summary))
	}
	if m.Tokens > 0 || m.CostUSD > 0 {
		line(w, "spent", fmt.Sprintf("%d tokens, %.4f USD", m.Tokens, m.CostUSD))
	}
	line(w, "created", m.CreatedAt.Local().Format(time.DateTime))
	if m.StartedAt != nil {
		line(w, "started", m.StartedAt.Local().Format(time.DateTime))
	}
	if m.EndedAt != nil {
		line(w, "ended", m.EndedAt.Local().Format(time.DateTime))
	}
}

// verbCommand is pause or resume.
func (a *app) verbCommand(verb, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " MISSION", Short: short, Args: cobra.ExactArgs(1),
		Example: "  airlock mission " + verb + " m-abc123 --reason \"maintenance\"",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.verb(cmd, verb, args[0], reason, *asJSON)
	}
	return cmd
}

func (a *app) verb(cmd *cobra.Command, verb, id, reason string, asJSON bool) error {
	c, done, err := a.client()
	if err != nil {
		return err
	}
	defer done()
	text, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/missions/"+segment(id)+"/"+verb, map[string]string{"reason": reason})
	if err != nil {
		return named(err, "mission", id)
	}
	if asJSON {
		return showJSON(cmd.OutOrStdout(), text)
	}
	var m mission
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if verb == "abort" && !m.terminal() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is being aborted\n", printable(m.MissionID))
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", printable(m.MissionID), m.State)
	return nil
}

func (a *app) killCommand() *cobra.Command {
	var reason, signal string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "kill MISSION…", Short: "abort missions, or send their sessions a signal", Args: cobra.MinimumNArgs(1),
		Long: `Abort a mission: the stop latch is set, everything of it is killed, and it ends
as aborted. Several are aborted one after another. With --signal the foreground process of its session gets a signal
instead, and what the mission makes of it is its own affair.`,
		Example: "  airlock mission kill m-abc123 --reason \"wrong branch\" --wait\n  airlock mission kill m-abc123 --signal INT",
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "why, for the journal")
	f.StringVar(&signal, "signal", "", "only send this signal: TERM, KILL, INT or HUP")
	f.BoolVar(&wait, "wait", false, "come back when nothing of it runs any more")
	f.DurationVar(&timeout, "timeout", time.Minute, "with --wait: how long at most (then exit code 5)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var errs []error
		for _, id := range args { // one that cannot be ended keeps no other alive
			if signal == "" {
				if err := a.verb(cmd, "abort", id, reason, false); err != nil || !wait {
					errs = append(errs, err)
					continue
				}
			}
			errs = append(errs, a.killed(cmd, id, signal, timeout))
		}
		return errors.Join(errs...)
	}
	return cmd
}

// killed sends a signal, or waits until an abort is through.
func (a *app) killed(cmd *cobra.Command, id, signal string, timeout time.Duration) error {
	c, done, err := a.client()
	if err != nil {
		return err
	}
	defer done()
	if signal != "" {
		return c.signal(cmd.Context(), id, signal)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	m, _, err := c.ended(ctx, id, nil)
	if err != nil {
		return waited(err, id, timeout)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is %s, nothing of it runs\n", printable(m.MissionID), m.State)
	return nil
}

func (c *client) signal(ctx context.Context, id, signal string) error {
	session, err := c.session(ctx, id)
	if err != nil {
		return err
	}
	_, err = c.call(ctx, http.MethodDelete, "/api/v1/sessions/"+segment(session)+"?signal="+url.QueryEscape(signal), nil)
	return named(err, "session", session)
}

// session is the session of a mission. Its id is known before it is there: a
// mission that was never started has none.
func (c *client) session(ctx context.Context, id string) (string, error) {
	var m mission
	if _, err := c.get(ctx, "/api/v1/missions/"+segment(id), &m); err != nil {
		return "", named(err, "mission", id)
	}
	if m.PTYSessionID != "" && m.StartedAt != nil {
		return m.PTYSessionID, nil
	}
	if m.terminal() {
		return "", failf(ExitConflict, "mission %q ended before it had a session (%s %s)", id, m.State, printable(m.StateReason))
	}
	return "", failf(ExitConflict, "mission %q has no session yet (%s)", id, m.State)
}

// waited says that a wait was over too soon.
func waited(err error, id string, timeout time.Duration) error {
	if ExitCode(err) == ExitTimedOut {
		return failf(ExitTimedOut, "mission %q has not ended in %s; airlock status %s shows where it is", id, timeout, shellQuote(id))
	}
	return err
}

// shellQuote makes an id fit for a command line that somebody copies.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(printable(s), "'", `'\''`) + "'"
}
