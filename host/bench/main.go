package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// group is a set of figures that share their preparation.
type group struct {
	figures []string
	run     func(*bench) error
}

// groups is the table of everything that is measured, in order.
func groups() []group {
	return []group{
		{[]string{"accept_p50_ms", "accept_p99_ms"}, measureAccept},
		{[]string{"start_host_p50_ms", "start_host_warm_p50_ms", "start_host_10_ms"}, measureStarts},
		{[]string{"hung_driver_start_ms"}, measureHung},
		{[]string{"accept_100k_ratio"}, measureStored},
		{[]string{"journal_8w_per_s"}, func(b *bench) error { return measureJournal(b, "journal_8w_per_s", 8) }},
		{[]string{"journal_64w_per_s"}, func(b *bench) error { return measureJournal(b, "journal_64w_per_s", 64) }},
		{[]string{"checkpoints_per_s"}, measureCheckpoints},
		{[]string{"composite_overhead_p50_ms"}, measureComposite},
		{[]string{"journal_verify_per_s"}, measureVerify},
		{[]string{"ws_p99_ms"}, measureDelivery},
		{[]string{"host_start_ms", "readopt_100_ms"}, measureReadopt},
		{[]string{"host_idle_rss_mb", "plugin_rss_mb", "cell_rss_mb"}, measureMemory},
		{[]string{"plugin_start_p50_ms"}, measurePluginStart},
		{[]string{"decision_p50_us"}, measureDecision},
		{[]string{"reserve_p50_ms"}, measureReserve},
		{[]string{"stop_proof_p99_ms"}, measureStop},
		{[]string{"gateway_ttfb_p50_ms", "cutoff_p50_ms"}, measureGateway},
		{[]string{"tool_overhead_p50_ms", "first_request_ratio"}, measureClaude},
		{[]string{"store_open_1m_ms", "store_kb_per_mission"}, measureOpen},
		{[]string{"upgrade_gap_ms"}, measureUpgrade},
		{[]string{"live_1000_started_ms", "live_1000_cpu_percent", "live_1000_kb_per_mission", "live_1000_fds_per_mission"}, measureLive},
		{roomFigures, measureRoom},
		{[]string{"start_docker_ratio"}, measureDocker},
		{[]string{"start_docker_warm_p50_ms"}, measureWarmDocker},
		{[]string{"start_vm_ratio", "vm_restore_p50_ms"}, measureVM},
		{[]string{"start_vm_warm_p50_ms"}, measureWarmVM},
	}
}

func main() {
	var only, bin, dir string
	var short bool
	flag.StringVar(&only, "only", "", "measure only these figures (names, separated by commas)")
	flag.StringVar(&bin, "bin", "./bin", "where `make build` has put the programs")
	flag.StringVar(&dir, "dir", "", "where temporary files go; on a real disk (default: the system's temporary directory)")
	flag.BoolVar(&short, "short", false, "fewer rounds: to see that it works, not to publish")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, only, bin, dir, short); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, bin, dir string, short bool) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	for _, name := range []string{"airlock", "airlock-cell", "plugins"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("%w (`make build` makes it)", err)
		}
	}
	// Short, because paths of unix sockets must be.
	dir, err = os.MkdirTemp(dir, "alb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // workloads have uids of their own
		return err
	}
	b := &bench{ctx: ctx, bin: bin, dir: dir, short: short, out: os.Stdout, only: map[string]bool{}}
	if err := b.choose(only); err != nil {
		return err
	}
	b.describeMachine()
	failed := 0
	for _, g := range groups() {
		if !slices.ContainsFunc(g.figures, b.wanted) {
			continue
		}
		began := time.Now()
		if err := g.run(b); err != nil {
			failed++
			b.note("FAILED %s: %v", strings.Join(g.figures, ", "), err)
		}
		b.note("%s took %.1f s", strings.Join(g.figures, ", "), time.Since(began).Seconds())
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of the measurements failed", failed)
	}
	return nil
}

// choose reads -only.
func (b *bench) choose(only string) error {
	known := map[string]bool{}
	for _, g := range groups() {
		for _, f := range g.figures {
			known[f] = true
		}
	}
	for name := range strings.SplitSeq(only, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !known[name] {
			return fmt.Errorf("-only: there is no figure %q", name)
		}
		b.only[name] = true
	}
	return nil
}

// wanted says whether a figure is to be measured.
func (b *bench) wanted(figure string) bool { return len(b.only) == 0 || b.only[figure] }
