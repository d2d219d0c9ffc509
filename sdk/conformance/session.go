package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
	"github.com/airlock-host/airlock/sdk/cell"
)

// sessionChecks run sessions in a cell. The cell agent does the work; what is
// checked is that the driver has given it a place in which it can.
func sessionChecks() []isolationCheck {
	return []isolationCheck{
		{"env-exact", "", envExact},
		{"cwd", "", workingDirectory},
		{"stdin-closed", "", stdinClosed},
		{"exec-stdin-eof", "", stdinEOF},
		{"exec-tty", "", terminal},
		{"exec-resize", "", resize},
		{"exec-signal", "", signalSession},
		{"exec-cancel-kills", "", killSession},
		{"exec-20-parallel", "", parallelSessions},
		{"exec-unstartable", "", unstartable},
		{"temp-dir", "", tempDir},
		{"devices", "", devices},
	}
}

// run starts a session as the spec says, and reads it to its end.
func (p *place) run(ctx context.Context, change func(*cellv1.Start), script string) (string, *cellv1.Exited, error) {
	s, err := p.startAs(ctx, change, script)
	if err != nil {
		return "", nil, err
	}
	return s.finish(ctx)
}

func (p *place) startAs(ctx context.Context, change func(*cellv1.Start), script string) (*session, error) {
	s := &session{p, newID()}
	facts := p.cell.GetFacts()
	req := &cellv1.Start{
		SessionId: s.id, Generation: 1, Argv: []string{"/bin/sh", "-c", script}, Cwd: facts.GetWorkspace(),
		Uid: facts.GetUid(), Gid: facts.GetGid(), OnFull: cellv1.OnFull_ON_FULL_BLOCK,
	}
	if change != nil {
		change(req)
	}
	if _, err := p.conn.Start(ctx, req); err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return s, nil
}

// envExact: a session has what it was given and what the agent adds, and
// nothing of the driver's.
func envExact(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	given := []string{"ONE=1", "TWO=a b=c", "EMPTY=", "UNI=żółć"}
	out, exit, err := p.run(ctx, func(s *cellv1.Start) {
		s.Env, s.Argv = given, []string{"/bin/cat", "/proc/self/environ"}
	}, "")
	if err != nil {
		return err
	}
	if exit.GetCode() != 0 {
		return fmt.Errorf("cat /proc/self/environ ended with code %d and said %q", exit.GetCode(), out)
	}
	have := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for _, v := range given {
		if !slices.Contains(have, v) {
			return fmt.Errorf("the session lacks %q: %q", v, have)
		}
	}
	for _, v := range have {
		name, _, _ := strings.Cut(v, "=")
		added := []string{"PATH", "HOME", "USER", "TERM", "LANG", "AIRLOCK_SESSION", "AIRLOCK_TMP", "AIRLOCK_ASK_SOCKET", "AIRLOCK_CELL"}
		if !slices.Contains(given, v) && !slices.Contains(added, name) {
			return fmt.Errorf("the session has %q, which nobody gave it", v)
		}
	}
	return nil
}

func workingDirectory(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	sub := p.cell.GetFacts().GetWorkspace() + "/deep/er"
	out, _, err := p.run(ctx, func(s *cellv1.Start) { s.Cwd = sub }, "pwd; echo x > file && cat file")
	if err == nil && out != sub+"\nx\n" {
		err = fmt.Errorf("a session in %s said %q", sub, out)
	}
	return err
}

// stdinClosed: standard input is the session's own pipe, with nothing of the
// driver's in it.
func stdinClosed(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "cat; echo end")
	if err != nil {
		return err
	}
	if err := p.conn.CloseInput(ctx, s.id, 1); err != nil {
		return fmt.Errorf("close input: %w", err)
	}
	out, _, err := s.finish(ctx)
	if err == nil && out != "end\n" {
		err = fmt.Errorf("a session without input read %q", out)
	}
	return err
}

func stdinEOF(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "sort; echo end")
	if err != nil {
		return err
	}
	for _, in := range []struct{ key, text string }{{"1", "b\n"}, {"2", "a\n"}, {"1", "b\n"}} { // a key counts once
		if err := p.conn.Input(ctx, s.id, in.key, []byte(in.text), 1); err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	if err := p.conn.CloseInput(ctx, s.id, 1); err != nil {
		return fmt.Errorf("close input: %w", err)
	}
	out, _, err := s.finish(ctx)
	if err == nil && out != "a\nb\nend\n" {
		err = fmt.Errorf("sort of b, a said %q", out)
	}
	return err
}

func onTerminal(s *cellv1.Start) { s.Terminal = &cellv1.TerminalSize{Cols: 91, Rows: 33} }

func terminal(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	out, _, err := p.run(ctx, onTerminal, "[ -t 0 ] && [ -t 1 ] && stty size; : > /dev/tty && echo controlling")
	if err == nil && out != "33 91\r\ncontrolling\r\n" {
		err = fmt.Errorf("a session on a terminal of 91 by 33 said %q", out)
	}
	return err
}

func resize(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, onTerminal, "stty -echo; touch up; read x; stty size")
	if err != nil {
		return err
	}
	if err := until(ctx, "the session", func() bool { return p.exists("up") }); err != nil {
		return err
	}
	if err := p.conn.Resize(ctx, s.id, 120, 50); err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	if err := p.conn.Input(ctx, s.id, "go", []byte("\n"), 1); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	out, _, err := s.finish(ctx)
	if err == nil && !strings.Contains(out, "50 120") {
		err = fmt.Errorf("a terminal resized to 120 by 50 says %q", out)
	}
	return err
}

func signalSession(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	s, err := p.startAs(ctx, nil, "trap 'echo got; exit 5' USR1; touch up; while :; do sleep 0.02; done")
	if err != nil {
		return err
	}
	if err := until(ctx, "the session", func() bool { return p.exists("up") }); err != nil {
		return err
	}
	if err := p.conn.Signal(ctx, s.id, 10, 1); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	out, exit, err := s.finish(ctx)
	if err == nil && (!strings.Contains(out, "got\n") || exit.GetCode() != 5) {
		err = fmt.Errorf("after SIGUSR1 the session said %q and ended with code %d", out, exit.GetCode())
	}
	return err
}

// killSession kills one session with all that it started, and no other.
func killSession(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := p.start(ctx, beat("other")); err != nil {
		return err
	}
	s, err := p.start(ctx, "setsid sh -c '"+beat("child")+"' & "+beat("self"))
	if err != nil {
		return err
	}
	for _, n := range []string{"other", "child", "self"} {
		if err := p.awaitBeat(ctx, n); err != nil {
			return err
		}
	}
	if err := p.conn.Kill(ctx, s.id, 0, 1); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	if err := p.still(ctx, "child", "self"); err != nil {
		return err
	}
	return p.awaitBeat(ctx, "other")
}

func parallelSessions(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	const n = 20
	sessions := make([]*session, n)
	group, gctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() (err error) {
			sessions[i], err = p.startAs(gctx, nil, fmt.Sprintf("echo %d; exit %d", i, i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	codes := map[string]int32{}
	for i, s := range sessions {
		out, err := s.output(ctx)
		if err != nil {
			return err
		}
		if out != fmt.Sprintf("%d\n", i) {
			return fmt.Errorf("session %d of %d said %q", i, n, out)
		}
	}
	for len(codes) < n {
		e, err := p.nextExit(ctx)
		if err != nil {
			return err
		}
		codes[e.GetSessionId()] = e.GetCode()
	}
	for i, s := range sessions {
		if codes[s.id] != int32(i) {
			return fmt.Errorf("session %d of %d ended with code %d", i, n, codes[s.id])
		}
	}
	return nil
}

func unstartable(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	_, err = p.startAs(ctx, func(s *cellv1.Start) { s.Argv = []string{"/no/such/program"} }, "")
	if !errors.Is(err, cell.ErrStartFailed) {
		return fmt.Errorf("the start of a program that is missing answers %w", err)
	}
	_, err = p.sh(ctx, "true")
	return err
}

func tempDir(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	_, err = p.sh(ctx, "f=$(mktemp) && echo x > $f && [ \"$(cat $f)\" = x ] && rm $f")
	return err
}

func devices(ctx context.Context, k *kit) error {
	p, err := k.create(ctx, nil)
	if err != nil {
		return err
	}
	out, err := p.sh(ctx, "echo x > /dev/null && head -c 8 /dev/zero | wc -c && head -c 8 /dev/urandom | wc -c && [ -d /proc/self/fd ] && echo ok")
	if err == nil && strings.Join(strings.Fields(out), " ") != "8 8 ok" {
		err = fmt.Errorf("null, zero, urandom and /proc in the cell: %q", out)
	}
	return err
}

// output reads a session's output to its end.
func (s *session) output(ctx context.Context) (string, error) {
	r, err := s.place.conn.ReadOutput(ctx, s.id, 0)
	if err != nil {
		return "", fmt.Errorf("read output: %w", err)
	}
	defer r.Close()
	var b strings.Builder
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || err == nil && f.GetEnd() != nil {
			return b.String(), nil
		}
		if err != nil {
			return b.String(), fmt.Errorf("read output: %w", err)
		}
		b.Write(f.GetData().GetData())
	}
}

// nextExit waits for the end of any session.
func (p *place) nextExit(ctx context.Context) (*cellv1.Exited, error) {
	for {
		select {
		case e, ok := <-p.conn.Events():
			if !ok {
				return nil, fmt.Errorf("wait for an exit: %w", p.conn.Err())
			}
			if e.Exited != nil {
				return e.Exited, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for an exit: %w", ctx.Err())
		}
	}
}

// quiet is how long nothing must happen for it to count as not happening.
const quiet = 300 * time.Millisecond
