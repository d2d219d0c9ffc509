package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeTime is how long a shell waits for the host's names.
const completeTime = 2 * time.Second

// names asks the host for words that a shell may complete, each with a
// description behind a tab.
type names func(ctx context.Context, c *client) []string

// completions says what the first argument of a command names, by its path
// below the root, and what a flag of any command does.
func completions() (args, flags map[string]names) {
	args = map[string]names{"plugin inspect": pluginNames, "plugin reload": pluginNames, "approve": approvalNames, "hitl respond": questionNames}
	for _, path := range []string{"status", "resolve", "journal events", "journal export", "control pause", "control resume", "control stop", "control restart", "control replan",
		"mission show", "mission logs", "mission files", "mission kill", "mission pause", "mission resume"} {
		args[path] = missionNames
	}
	args["mission attach"] = runningNames
	return args, map[string]names{"agent": agentNames, "task": missionNames}
}

// complete gives every command below root what its shell completes.
func (a *app) complete(root *cobra.Command) {
	args, flags := completions()
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		if find := args[strings.Join(path, " ")]; find != nil {
			rest := cmd.ValidArgsFunction
			cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, word string) ([]string, cobra.ShellCompDirective) {
				switch {
				case len(given) == 0:
					return a.ask(cmd, find), cobra.ShellCompDirectiveNoFileComp
				case rest != nil:
					return rest(cmd, given, word)
				}
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
		}
		for name, find := range flags {
			if cmd.Flags().Lookup(name) == nil {
				continue
			}
			// It fails only for a flag that is not there, or was given one already.
			_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return a.ask(cmd, find), cobra.ShellCompDirectiveNoFileComp
			})
		}
		for _, sub := range cmd.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(root, nil)
}

// ask gives nothing when the host cannot be asked: a shell has nobody to tell.
func (a *app) ask(cmd *cobra.Command, find names) []string {
	c, done, err := a.client()
	if err != nil {
		return nil
	}
	defer done()
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	return find(ctx, c)
}

// word is a name with its description; names with blanks in them are left out,
// a shell would take them apart.
func word(list []string, name, description string) []string {
	if name == "" || strings.ContainsAny(name, " \t\n\"'\\$`") {
		return list
	}
	return append(list, name+"\t"+cut(printable(strings.TrimSpace(description)), 60))
}

func missionNames(ctx context.Context, c *client) []string { return c.missionWords(ctx, "") }
func runningNames(ctx context.Context, c *client) []string { return c.missionWords(ctx, "&live=1") }

func (c *client) missionWords(ctx context.Context, filter string) (list []string) {
	var page missions
	if _, err := c.get(ctx, "/api/v1/missions?limit=100"+filter, &page); err != nil {
		return nil
	}
	for _, raw := range page.Missions {
		var m mission
		if json.Unmarshal(raw, &m) == nil {
			list = word(list, m.MissionID, m.State+": "+m.Objective)
		}
	}
	return list
}

func agentNames(ctx context.Context, c *client) (list []string) {
	var answer struct {
		Agents []agent `json:"agents"`
	}
	if _, err := c.get(ctx, "/api/v1/agents", &answer); err != nil {
		return nil
	}
	for _, g := range answer.Agents {
		list = word(list, g.Name, g.Isolation+", "+g.Runtime)
	}
	return list
}

func pluginNames(ctx context.Context, c *client) (list []string) {
	plugins, _, err := c.plugins(ctx)
	if err != nil {
		return nil
	}
	for _, p := range plugins {
		list = word(list, p.Ref, p.State)
	}
	return list
}

func approvalNames(ctx context.Context, c *client) []string { return c.questionWords(ctx, true) }
func questionNames(ctx context.Context, c *client) []string { return c.questionWords(ctx, false) }

func (c *client) questionWords(ctx context.Context, approvals bool) (list []string) {
	var answer struct {
		Questions []question `json:"questions"`
	}
	if _, err := c.get(ctx, "/api/v1/hitl", &answer); err != nil {
		return nil
	}
	for _, q := range answer.Questions {
		if q.approval() == approvals {
			list = word(list, q.HITLID, q.MissionID+": "+q.Prompt)
		}
	}
	return list
}
