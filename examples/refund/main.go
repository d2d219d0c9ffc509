// Command refund tells the refund story of a governed agent over HTTP against a
// real host, which it starts with a directory of its own and ends again: a call
// that is allowed; a refund that a human approves and that then runs once; a
// refund that is rejected and does not run; a stop, after which the issuer of
// the agent's access has confirmed that it is cut and nothing runs any more.
//
// It imports what a harness imports (sdk/governance) and the standard library.
// The one idea: what it prints comes from the host's journal, not from what the
// program believes it has done.
//
//	make demo
//	go run ./examples/refund --record /tmp/lifecycle.json
//	go run ./examples/refund --interactive
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	record := flag.String("record", "", "write the recorded lifecycle (events, receipt, ledger) to this file")
	interactive := flag.Bool("interactive", false, "let a human answer, in the Control Room or with airlock approve")
	bin := flag.String("bin", "bin", "where make build has put airlock, airlock-cell and plugins/")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *record, *interactive); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, record string, interactive bool) (err error) {
	iss, err := startIssuer()
	if err != nil {
		return err
	}
	defer iss.close()
	h, err := startHost(ctx, bin, iss)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := h.close(); err == nil {
			err = cerr
		}
	}()
	s := &story{host: h, issuer: iss, interactive: interactive}
	if err := s.tell(ctx); err != nil {
		return err
	}
	if record != "" {
		return s.record(ctx, record)
	}
	return nil
}
