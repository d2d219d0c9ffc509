package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func (a *app) journalCommand() *cobra.Command {
	return group(&cobra.Command{Use: "journal", Short: "read, export and verify the journals of tasks"},
		a.eventsCommand(), a.exportCommand(), verifyCommand(), repairCommand())
}

func (a *app) eventsCommand() *cobra.Command {
	var after uint64
	var follow bool
	cmd := &cobra.Command{
		Use: "events [TASK]", Short: "print a task's events", Args: cobra.MaximumNArgs(1),
		Example: "  airlock journal events m-abc123 --follow\n  airlock journal events m-abc123 --json | jq .kind",
	}
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object for each event")
	cmd.Flags().Uint64Var(&after, "after", 0, "only events behind this sequence")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task ends")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		task, err := a.needTask(args, "journal events")
		if err != nil {
			return err
		}
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		w := cmd.OutOrStdout()
		show := func(ev event) error {
			if !*asJSON {
				ev.show(w)
			} else if _, err := fmt.Fprintf(w, "%s\n", ev.raw); err != nil {
				return err
			}
			if follow && ev.Kind == "ended" {
				return errEnough
			}
			return nil
		}
		if !follow {
			return named(c.pages(cmd.Context(), task, after, show), "task", task)
		}
		return named(c.follow(cmd.Context(), task, after, show), "task", task)
	}
	return cmd
}

func (a *app) needTask(args []string, command string) (string, error) {
	task, err := a.task(args)
	if err == nil && task == "" {
		err = failf(ExitFailed, "which task? airlock %s TASK, or set SIDECAR_ENDPOINT", command)
	}
	return task, err
}

func (a *app) exportCommand() *cobra.Command {
	var out string
	var bundle bool
	var format exportFormat
	cmd := &cobra.Command{
		Use: "export [TASK]", Short: "export a task's journal as JSON lines", Args: cobra.MaximumNArgs(1),
		Long: `Export a task's journal: one event per line with the exact hashed text of its
payload, so that it can be verified without the host (airlock journal verify).
A file appears only when the export is whole and its chain is right.

With --format decisions there is one line for each decision instead, with the six
fields that other programs read and an evidence link; see docs/governance-export.md.

With --bundle it is the evidence bundle: events, policy, plugins, approvals and
receipts with the head signed by the host, which airlock-verify checks without
a host, a network or anything else of Airlock; see docs/proof.md.`,
		Example: "  airlock journal export m-abc123 -o m-abc123.jsonl && airlock journal verify m-abc123.jsonl\n" +
			"  airlock journal export m-abc123 --format decisions --agent-id deployment-7\n" +
			"  airlock journal export m-abc123 --bundle -o m-abc123.evidence && airlock-verify --key host.key.pub m-abc123.evidence",
	}
	cmd.Flags().BoolVar(&bundle, "bundle", false, "write the evidence bundle, for airlock-verify")
	cmd.Flags().StringVarP(&out, "output", "o", "-", "file to write, mode 0600 (- = standard output)")
	format.flags(cmd, a.version)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := format.check(); err != nil {
			return err
		}
		if bundle && cmd.Flags().Changed("format") {
			return failf(ExitFailed, "--bundle has one format of its own: leave --format out")
		}
		write := format.write
		if bundle {
			write = func(ctx context.Context, c *client, task string, w io.Writer) error { return c.evidence(ctx, task, w) }
		}
		task, err := a.needTask(args, "journal export")
		if err != nil {
			return err
		}
		c, done, err := a.client()
		if err != nil {
			return err
		}
		defer done()
		if out == "-" {
			return named(write(cmd.Context(), c, task, cmd.OutOrStdout()), "task", task)
		}
		// Nothing half-written stays behind ^C.
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		return exportFile(out, func(w io.Writer) error { return named(write(ctx, c, task, w), "task", task) })
	}
	return cmd
}

// exportFile writes beside the file and moves it there when it is whole. What
// is no file (a pipe, /dev/null) is written to as it is, never replaced.
func exportFile(path string, write func(io.Writer) error) (err error) {
	if info, serr := os.Stat(path); serr == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".airlock-export-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// export copies the journal and verifies it on the way, up to the head that the
// host names.
func (c *client) export(ctx context.Context, task string, w io.Writer) error {
	resp, err := c.open(ctx, "GET", "/tasks/"+segment(task)+"/export", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	head, err := journal.Verify(io.TeeReader(resp.Body, w), nil)
	if err != nil {
		return fmt.Errorf("the export broke off or is not right: %w", err)
	}
	if want := resp.Header.Get("Airlock-Head-Sequence"); want != fmt.Sprint(head.Sequence) || head.TaskID != task {
		return fmt.Errorf("the export broke off: it has %d events of task %q, the host has %s", head.Sequence, head.TaskID, want)
	}
	return nil
}

// evidence copies the evidence bundle and checks it on the way.
func (c *client) evidence(ctx context.Context, task string, w io.Writer) error {
	resp, err := c.open(ctx, "GET", "/tasks/"+segment(task)+"/bundle", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	report, err := evidence.Verify(io.TeeReader(resp.Body, w), nil)
	if err != nil {
		return fmt.Errorf("the bundle broke off or is not right: %w", err)
	}
	if report.TaskID != task {
		return fmt.Errorf("the host sent a bundle of task %q", report.TaskID)
	}
	return nil
}

func verifyCommand() *cobra.Command {
	var headFile, keyFile string
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "verify an exported journal, without a host", Args: cobra.ExactArgs(1),
		Long: `Verify an exported journal (- = standard input): every digest, the links between
events, no event missing, twice or out of order. A journal by itself cannot show
that its last events were cut off, or that it was rewritten as a whole. With
--head FILE it is held against its trusted head as well: the host's file of
signed heads (governance.head.file), whose signatures --key checks (the host
key's public half, key_file.pub), or one head as JSON
{"task_id","journal_uuid","sequence","digest"}.`,
		Example: "  airlock journal verify m-abc123.jsonl\n  airlock journal verify m-abc123.jsonl --head heads.jsonl --key host.key.pub",
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&headFile, "head", "", "file with the trusted head")
	cmd.Flags().StringVar(&keyFile, "key", "", "public key that the heads must be signed with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if keyFile != "" && headFile == "" {
			return failf(ExitFailed, "--key checks the signatures of --head FILE")
		}
		in, done, err := openInput(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		defer done()
		head, err := verify(in, headFile, keyFile)
		var bad error
		if err != nil {
			bad = failf(ExitFailed, "%s does not verify: %w", args[0], err)
		}
		if *asJSON {
			if err := showVerified(cmd.OutOrStdout(), head, headFile != "", err); err != nil {
				return err
			}
		}
		if bad != nil || *asJSON {
			return bad
		}
		w := cmd.OutOrStdout()
		fmt.Fprintln(w, "the journal is right")
		line(w, "task", head.TaskID)
		line(w, "journal", head.JournalUUID)
		line(w, "events", fmt.Sprint(head.Sequence))
		line(w, "digest", head.Digest.String())
		if headFile == "" {
			line(w, "head", "not checked: without --head nobody can see that the end was cut off")
		} else {
			line(w, "head", "the journal contains its trusted head")
		}
		return nil
	}
	return cmd
}

// openInput opens a file that can be read twice.
func openInput(stdin io.Reader, path string) (in io.ReadSeeker, done func(), err error) {
	if path != "-" {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil, failf(ExitNotFound, "%w", err)
		}
		if err != nil {
			return nil, nil, err
		}
		return f, func() { _ = f.Close() }, nil
	}
	f, err := os.CreateTemp("", "airlock-verify-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = f.Close(); _ = os.Remove(f.Name()) }
	if _, err = io.Copy(f, stdin); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return f, done, nil
}

// verify checks an export by itself, then against its trusted head.
func verify(in io.ReadSeeker, headFile, keyFile string) (journal.Head, error) {
	head, err := journal.Verify(in, nil)
	if err != nil || headFile == "" {
		return head, err
	}
	trusted, err := trustedHead(headFile, keyFile, head.TaskID)
	if err != nil {
		return head, err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return head, err
	}
	return journal.Verify(in, &trusted)
}

// trustedHead finds a task's head in a file of signed heads or of one head.
func trustedHead(path, keyFile, task string) (journal.Head, error) {
	if keyFile == "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return journal.Head{}, err
		}
		var one journal.Head
		if json.Unmarshal(text, &one) == nil && one.TaskID != "" && one.Sequence > 0 {
			if one.TaskID != task {
				return one, fmt.Errorf("%s is the head of task %q, the journal is of %q", path, one.TaskID, task)
			}
			return one, nil
		}
		return journal.Head{}, fmt.Errorf("%s is not one head as JSON; a file of signed heads needs --key, the public half of the host's key", path)
	}
	key, err := heads.LoadPublicKey(keyFile)
	if err != nil {
		return journal.Head{}, err
	}
	return findHead(path, key, task)
}

// findHead looks into the file and into that of the tasks that have ended.
func findHead(path string, key heads.Key, task string) (journal.Head, error) {
	var best journal.Head
	found := false
	var problems []error
	for _, file := range []string{path, path + ".ended"} {
		head, ok, bad, err := heads.Find(file, key, task)
		if errors.Is(err, os.ErrNotExist) && file != path {
			continue
		}
		if err != nil {
			return best, err
		}
		for _, p := range bad {
			problems = append(problems, p)
		}
		if ok && (!found || head.Sequence > best.Sequence) {
			best, found = head, true
		}
	}
	switch {
	case len(problems) > 0:
		return best, fmt.Errorf("the file of heads cannot be trusted: %w", errors.Join(problems...))
	case !found:
		return best, failf(ExitNotFound, "%s has no head of task %q", path, task)
	default:
		return best, nil
	}
}

func showVerified(w io.Writer, head journal.Head, againstHead bool, err error) error {
	out := map[string]any{"ok": err == nil, "head": head, "against_head": againstHead, "error": nil, "fault": nil}
	if err != nil {
		out["error"] = err.Error()
		var ce *journal.ChainError
		if errors.As(err, &ce) {
			out["fault"] = ce.Fault
		}
	}
	text, jerr := json.Marshal(out)
	if jerr != nil {
		return jerr
	}
	return showJSON(w, text)
}
