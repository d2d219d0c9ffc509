package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// dispatchFlags are those of `mission dispatch`.
type dispatchFlags struct {
	id, agent, completion, metadata, file string
	capabilities                          []string
	wait, follow                          bool
	timeout                               time.Duration
}

func (a *app) dispatchCommand() *cobra.Command {
	var o dispatchFlags
	cmd := &cobra.Command{
		Use: "dispatch [OBJECTIVE]", Short: "start a mission on this host", Args: cobra.MaximumNArgs(1),
		Long: `Start a mission on this host. What the objective means is the runtime's affair:
for the command runtime it is the command. The orchestrator does not hear of
missions that are started here.`,
		Example: `  airlock mission dispatch "echo hello" --follow
  airlock mission dispatch "make test" --agent agent-01 --wait --timeout 10m
  airlock mission dispatch -f mission.json`,
	}
	asJSON := jsonFlag(cmd)
	f := cmd.Flags()
	o.bodyFlags(f)
	f.BoolVar(&o.wait, "wait", false, "come back when it has ended: 0 if it is done, else 1")
	f.BoolVar(&o.follow, "follow", false, "print its output until it has ended; the exit code as with --wait")
	f.DurationVar(&o.timeout, "timeout", 0, "with --wait or --follow: how long at most (then exit code 5; the mission goes on)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body, err := o.body(cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		text, err := c.call(cmd.Context(), http.MethodPost, "/api/v1/missions", body)
		if err != nil {
			return err
		}
		var answer struct {
			MissionID string `json:"mission_id"`
			Duplicate bool   `json:"duplicate"`
			Differs   bool   `json:"differs"`
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return err
		}
		if answer.Differs {
			return failf(ExitConflict, "mission %q was asked for with something else before; that one goes on, and nothing was started", printable(answer.MissionID))
		} else if answer.Duplicate {
			fmt.Fprintln(cmd.ErrOrStderr(), "the mission was known already; nothing was started")
		}
		if !o.wait && !o.follow {
			if *asJSON {
				return showJSON(cmd.OutOrStdout(), text)
			}
			fmt.Fprintln(cmd.OutOrStdout(), answer.MissionID)
			return nil
		}
		if o.follow { // standard output is the mission's
			fmt.Fprintf(cmd.ErrOrStderr(), "mission %s\n", printable(answer.MissionID))
		} else if !*asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), answer.MissionID)
		}
		return o.await(cmd, c, answer.MissionID, *asJSON)
	}
	return cmd
}

// bodyFlags are those that make the dispatch.
func (o *dispatchFlags) bodyFlags(f *pflag.FlagSet) {
	f.StringVar(&o.id, "id", "", "mission id (default: the host makes one); the same again starts nothing")
	f.StringVar(&o.agent, "agent", "", "agent block to use (default: the first that fits)")
	f.StringVar(&o.completion, "completion", "", "when it counts as done, in words")
	f.StringSliceVar(&o.capabilities, "capability", nil, "what the agent must provide, e.g. isolation:vm")
	f.StringVar(&o.metadata, "metadata", "", "file with a JSON object that goes along")
	f.StringVarP(&o.file, "file", "f", "", "JSON file with the whole dispatch (- = standard input); flags win")
}

// await waits for the end of a mission that was dispatched.
func (o *dispatchFlags) await(cmd *cobra.Command, c *client, id string, asJSON bool) error {
	ctx := cmd.Context()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if o.follow {
		if err := c.logs(ctx, id, 0, true, &gapWriter{Writer: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}); err != nil {
			return waited(err, id, o.timeout)
		}
	}
	m, text, err := c.ended(ctx, id, nil)
	if err != nil {
		return waited(err, id, o.timeout)
	}
	if asJSON {
		if err := showJSON(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return m.outcome()
}

// body puts the dispatch together.
func (o *dispatchFlags) body(stdin io.Reader, args []string) (map[string]any, error) {
	body := map[string]any{}
	if o.file != "" {
		if err := readObject(stdin, o.file, &body); err != nil {
			return nil, err
		}
		// What serve's form of a dispatch says in its filter is said here in
		// members of their own.
		if filter, ok := body["executor_filter"].(map[string]any); ok {
			delete(body, "executor_filter")
			for from, to := range map[string]string{"agent_id": "agent_id", "capabilities": "capabilities"} {
				if v := filter[from]; v != nil && body[to] == nil {
					body[to] = v
				}
			}
		}
	}
	if len(args) > 0 {
		body["objective"] = args[0]
	}
	for name, v := range map[string]string{"mission_id": o.id, "agent_id": o.agent, "completion": o.completion} {
		if v != "" {
			body[name] = v
		}
	}
	if len(o.capabilities) > 0 {
		body["capabilities"] = o.capabilities
	}
	if o.metadata != "" {
		meta := map[string]any{}
		if err := readObject(stdin, o.metadata, &meta); err != nil {
			return nil, err
		}
		body["metadata"] = meta
	}
	if s, _ := body["objective"].(string); s == "" {
		return nil, failf(ExitFailed, `what is the mission to do? airlock mission dispatch "echo hello"`)
	}
	return body, nil
}

// readObject reads a JSON object from a file, - being standard input.
func readObject(stdin io.Reader, path string, into *map[string]any) error {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	dec := json.NewDecoder(in)
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%s is not a JSON object: %w", path, err)
	}
	return nil
}
