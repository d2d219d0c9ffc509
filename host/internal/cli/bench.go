package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/airlock-host/airlock/host/internal/figure"
)

// benchFlags are those of `airlock bench`.
type benchFlags struct {
	agent, objective string
	missions         int
	concurrency      []int
	timeout          time.Duration
}

func (a *app) benchCommand() *cobra.Command {
	var o benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "measure the host that runs, with missions", Args: cobra.NoArgs,
		Long: `Dispatch missions to the host that runs and say how long it took: to take them in
(durably), to start them, and how many a second. One JSON object a line, as "make
bench" prints them: {"figure","value","unit","n","spread"}.

The missions are real ones: they take slots of the agent, and stay in the store
and in the list. What they do is --objective, for the command runtime a command.`,
		Example: "  airlock bench\n  airlock bench --agent agent-01 -n 200 --concurrency 1,8,64",
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "agent block to use (default: the first that fits)")
	f.StringVar(&o.objective, "objective", "true", "what each mission does")
	f.IntVarP(&o.missions, "missions", "n", 50, "missions for each concurrency")
	f.IntSliceVar(&o.concurrency, "concurrency", []int{1, 8}, "how many are dispatched side by side")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after this time (exit code 5)")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, _ []string, c *client) error {
		if o.missions < 1 || o.missions > 100000 {
			return failf(ExitFailed, "-n must be from 1 to 100000")
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
		defer cancel()
		for _, side := range o.concurrency {
			if side < 1 || side > 1024 {
				return failf(ExitFailed, "--concurrency must be from 1 to 1024")
			}
			if t, ok := c.http.Transport.(*http.Transport); ok {
				t.MaxIdleConnsPerHost = side
			}
			if err := o.measure(ctx, c, side, cmd.OutOrStdout()); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// sample is one mission of a measurement, in milliseconds.
type sample struct {
	accept, start float64
	err           error
}

// measure dispatches side by side, waits for the ends and prints the figures.
func (o *benchFlags) measure(ctx context.Context, c *client, side int, w io.Writer) error {
	samples := make([]sample, o.missions)
	next := make(chan int)
	begin := time.Now()
	var accepted time.Duration
	ids := make([]string, o.missions)
	var wg sync.WaitGroup
	for range side {
		wg.Go(func() {
			for i := range next {
				ids[i], samples[i].accept, samples[i].err = o.dispatch(ctx, c)
			}
		})
	}
	for i := range samples {
		next <- i
	}
	close(next)
	wg.Wait()
	accepted = time.Since(begin)
	for i, id := range ids {
		if samples[i].err != nil {
			return samples[i].err
		}
		m, _, err := c.ended(ctx, id, nil)
		if err != nil {
			return waited(err, id, o.timeout)
		}
		if m.State != "done" || m.StartedAt == nil {
			return m.outcome()
		}
		samples[i].start = figure.MS(m.StartedAt.Sub(m.CreatedAt))
	}
	var accept, start []float64
	for _, s := range samples {
		accept, start = append(accept, s.accept), append(start, s.start)
	}
	name := func(what string) string { return fmt.Sprintf("live_%s_c%d", what, side) }
	for _, r := range []figure.Result{
		figure.Of(name("accept_p50_ms"), "ms", figure.Median(accept), 0, len(accept), figure.Spread(accept)),
		figure.Of(name("accept_p99_ms"), "ms", figure.Percentile(accept, 0.99), 0, len(accept), figure.Spread(figure.Sliced(accept, 0.99))),
		figure.Of(name("start_p50_ms"), "ms", figure.Median(start), 0, len(start), figure.Spread(start)),
		figure.Of(name("start_p99_ms"), "ms", figure.Percentile(start, 0.99), 0, len(start), figure.Spread(figure.Sliced(start, 0.99))),
		figure.Of(name("dispatches_per_s"), "1/s", float64(o.missions)/accepted.Seconds(), 0, o.missions, figure.Spread(accept)),
	} {
		if err := r.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// dispatch starts one mission; how long the answer took is in milliseconds.
func (o *benchFlags) dispatch(ctx context.Context, c *client) (id string, took float64, err error) {
	body := map[string]any{"objective": o.objective, "completion": "it exits 0"}
	if o.agent != "" {
		body["agent_id"] = o.agent
	}
	begin := time.Now()
	text, err := c.call(ctx, http.MethodPost, "/api/v1/missions", body)
	took = figure.MS(time.Since(begin))
	if err != nil {
		return "", took, err
	}
	var answer struct {
		MissionID string `json:"mission_id"`
	}
	err = json.Unmarshal(text, &answer)
	return answer.MissionID, took, err
}
