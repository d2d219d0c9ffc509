// Command airlock-verify checks an evidence bundle (`airlock journal export
// --bundle`) by itself: no host, no network, no configuration. It is what a third
// party runs, and it believes nothing but the key that it is given.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/version"
)

// Exit codes.
const (
	whole   = 0
	damaged = 1
	unread  = 2 // the bundle or the key cannot be read, or the command line is wrong
)

const usage = `airlock-verify checks an evidence bundle of Airlock.

  airlock-verify [--key host.key.pub] [--json] FILE      (- = standard input)

It checks every event's digest and link, that policy, plugins, approvals,
receipts and outcome are what the events say, that the head is signed, and the
digest over the whole file. With --key it checks that the signature is by that
key: the public half of the host's key, from the host's operator. Without it a
bundle shows that it is whole, but not whose it is.

Exit code 0: the bundle is right. 1: it is damaged. 2: it could not be checked.

`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, out, errs io.Writer) int {
	f := flag.NewFlagSet("airlock-verify", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() { fmt.Fprint(errs, usage); f.PrintDefaults() }
	keyFile := f.String("key", "", "file with the host's public key (key_file.pub)")
	asJSON := f.Bool("json", false, "print one JSON object")
	showVersion := f.Bool("version", false, "print the version")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return whole
	} else if err != nil {
		return unread
	}
	if *showVersion {
		fmt.Fprintln(out, version.Version)
		return whole
	}
	if f.NArg() != 1 {
		fmt.Fprintln(errs, "airlock-verify: name one bundle (- = standard input); flags come before it")
		return unread
	}
	report, err := check(f.Arg(0), *keyFile, stdin)
	var damage *evidence.DamageError
	if *asJSON {
		text, jerr := json.MarshalIndent(answer{OK: err == nil, Report: report, Error: words(err)}, "", "  ")
		if jerr != nil {
			fmt.Fprintln(errs, "airlock-verify:", jerr)
			return unread
		}
		fmt.Fprintf(out, "%s\n", text)
	}
	switch {
	case errors.As(err, &damage):
		fmt.Fprintf(errs, "airlock-verify: %s is damaged: %v\n", f.Arg(0), err)
		return damaged
	case err != nil:
		fmt.Fprintln(errs, "airlock-verify:", err)
		return unread
	case !*asJSON:
		show(out, report)
	}
	return whole
}

// answer is what --json prints.
type answer struct {
	OK bool `json:"ok"`
	evidence.Report
	Error string `json:"error,omitempty"`
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func check(file, keyFile string, stdin io.Reader) (evidence.Report, error) {
	var key *record.Key
	if keyFile != "" {
		text, err := os.ReadFile(keyFile)
		if err != nil {
			return evidence.Report{}, err
		}
		k, err := record.ParseKey(text)
		if err != nil {
			return evidence.Report{}, fmt.Errorf("%s: %w", keyFile, err)
		}
		key = &k
	}
	if file == "-" {
		return evidence.Verify(stdin, key)
	}
	in, err := os.Open(file)
	if err != nil {
		return evidence.Report{}, err
	}
	defer in.Close()
	return evidence.Verify(in, key)
}

func show(out io.Writer, r evidence.Report) {
	fmt.Fprintln(out, "the bundle is whole")
	row := func(name string, v any) { fmt.Fprintf(out, "%-12s %v\n", name, v) }
	row("task", fmt.Sprintf("%q", r.TaskID))
	row("journal", r.JournalUUID)
	row("events", r.Events)
	row("digest", r.Digest)
	for _, name := range slices.Sorted(maps.Keys(r.Told)) {
		row(name, r.Told[name])
	}
	if r.State != "" {
		row("state", fmt.Sprintf("%q", r.State))
	}
	row("signed at", r.SignedAt)
	if r.Trusted {
		row("signed by", r.KeyID+", the key that you trust")
	} else {
		row("signed by", r.KeyID+", which was not compared with a key that you trust (--key)")
	}
}
