package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// detachKey is ctrl-], interruptKey ctrl-c.
const (
	detachKey    = 0x1d
	interruptKey = 0x03
)

func (a *app) attachCommand() *cobra.Command {
	var watch, write bool
	var at uint64
	cmd := &cobra.Command{
		Use: "attach MISSION", Short: "sit down at a mission's terminal", Args: cobra.ExactArgs(1),
		Long: `Attach this terminal to a mission's session. ctrl-] detaches; the mission goes
on. One at a time may type, any number may watch. At a terminal the writer slot
is taken if it is free and yours to take, else you watch; --write insists on it
and --watch leaves it alone. What is not a terminal types (--watch: does not).`,
		Example: "  airlock mission attach m-abc123\n  airlock mission attach m-abc123 --watch\n  echo yes | airlock mission attach m-abc123 --write",
	}
	cmd.Flags().BoolVar(&write, "write", false, "take the writer slot or fail: exit code 3 if somebody has it, 4 if you may not")
	cmd.Flags().BoolVar(&watch, "watch", false, "watch only, type nothing")
	cmd.MarkFlagsMutuallyExclusive("write", "watch")
	cmd.Flags().Uint64Var(&at, "from", 0, "begin with the output at this byte")
	cmd.RunE = a.withHost(func(cmd *cobra.Command, args []string, c *client) error {
		session, err := c.session(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		t := &terminal{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), write: !watch, insist: write}
		return named(t.attach(cmd.Context(), c, session, at), "session", session)
	})
	return cmd
}

// socket opens a WebSocket of the host.
func (c *client) socket(ctx context.Context, path string) (*websocket.Conn, error) {
	d := websocket.Dialer{NetDialContext: c.dial, TLSClientConfig: c.tls}
	head := http.Header{}
	if c.token != "" {
		head.Set("Authorization", "Bearer "+c.token)
	}
	conn, resp, err := d.DialContext(ctx, "ws"+strings.TrimPrefix(c.base, "http")+path, head)
	if err != nil && resp != nil {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.refused(resp)
	}
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return conn, nil
}

// terminal is this end of an attachment.
type terminal struct {
	in         io.Reader
	out, notes io.Writer
	write      bool
	insist     bool // on the writer slot

	mu   sync.Mutex
	conn *websocket.Conn
}

// send writes one frame; a failure shows itself at the reading end.
func (t *terminal) send(kind int, data []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn.WriteMessage(kind, data)
}

// errDetached says that the detach key was pressed.
var errDetached = errors.New("detached")

func (t *terminal) attach(ctx context.Context, c *client, session string, at uint64) error {
	if err := t.open(ctx, c, fmt.Sprintf("/ws/sessions/%s?from=%d", segment(session), at)); err != nil {
		return err
	}
	defer func() { _ = t.conn.Close() }()
	// The terminal is put right before the program dies of one of these.
	ctx, unsignal := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGHUP)
	defer unsignal()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = t.conn.Close() })
	defer stop()
	restore, fd, raw, err := t.raw()
	if err != nil {
		return err
	}
	defer restore()
	if raw {
		how := "attached; ctrl-] detaches\r\n"
		if !t.write {
			how = "watching; ctrl-] or ctrl-c detaches\r\n"
		}
		fmt.Fprint(t.notes, how)
	}
	if raw && t.write {
		defer t.watchSize(ctx, fd)()
	}
	if raw || t.write {
		go func() { // reading standard input cannot be ended, the program does that
			if t.typed(raw) {
				cancel(errDetached)
			}
		}()
	}
	err = t.show()
	switch {
	case errors.Is(context.Cause(ctx), errDetached):
		restore()
		fmt.Fprintln(t.notes, "\ndetached; the mission goes on")
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return err
	}
}

// open takes the writer slot if that is wanted and possible. Somebody at a
// terminal who cannot have it sees that and watches; what a program types must
// not get lost.
func (t *terminal) open(ctx context.Context, c *client, path string) (err error) {
	if t.write {
		t.conn, err = c.socket(ctx, path+"&write=1")
		_, isTerminal := t.terminal()
		if code := ExitCode(err); err == nil || t.insist || !isTerminal || code != ExitConflict && code != ExitNotAllowed {
			return err
		}
		t.write = false
		fmt.Fprintln(t.notes, err)
	}
	t.conn, err = c.socket(ctx, path)
	return err
}

// terminal is the descriptor of the terminal that is typed at, if it is one.
func (t *terminal) terminal() (fd int, ok bool) {
	f, ok := t.in.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// raw puts a terminal into raw mode. raw is false where there is none.
func (t *terminal) raw() (restore func(), fd int, raw bool, err error) {
	fd, ok := t.terminal()
	if !ok {
		return func() {}, 0, false, nil
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, 0, false, fmt.Errorf("put the terminal into raw mode: %w", err)
	}
	return sync.OnceFunc(func() { _ = term.Restore(fd, state) }), fd, true, nil
}

// watchSize sends the terminal's size now and at every change.
func (t *terminal) watchSize(ctx context.Context, fd int) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			// A terminal that nobody has given a size yet says 0 by 0.
			if cols, rows, err := term.GetSize(fd); err == nil && cols > 0 && rows > 0 {
				frame, _ := json.Marshal(map[string]any{"type": "resize", "cols": cols, "rows": rows})
				_ = t.send(websocket.TextMessage, frame)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		cancel()
		wg.Wait()
	}
}

// typed sends what is typed until the input ends; true: the detach key was
// pressed. Only a terminal has one: a pipe's bytes all go through. Of somebody
// who watches only the keys that detach count.
func (t *terminal) typed(raw bool) bool {
	buf := make([]byte, 4096)
	keys := []byte{detachKey}
	if !t.write {
		keys = append(keys, interruptKey)
	}
	for {
		n, err := t.in.Read(buf)
		data := buf[:n]
		detach := false
		if i := bytes.IndexAny(data, string(keys)); raw && i >= 0 {
			data, detach = data[:i], true
		}
		if !t.write {
			data = nil
		}
		if detach {
			if len(data) > 0 {
				_ = t.send(websocket.BinaryMessage, data)
			}
			return true
		}
		if len(data) > 0 && t.send(websocket.BinaryMessage, data) != nil || err != nil {
			return false
		}
	}
}

// show prints what comes until the session ends.
func (t *terminal) show() error {
	for {
		kind, data, err := t.conn.ReadMessage()
		var ce *websocket.CloseError
		switch {
		case errors.As(err, &ce) && ce.Code == websocket.CloseNormalClosure:
			return nil
		case errors.As(err, &ce):
			return failf(ExitFailed, "the host closed the connection: %s", printable(ce.Text))
		case err != nil:
			return failf(ExitFailed, "the connection broke off: %w", err)
		case kind == websocket.BinaryMessage:
			if _, err := t.out.Write(data); err != nil {
				return err
			}
			continue
		}
		var f struct {
			Type  string `json:"type"`
			From  uint64 `json:"from"`
			To    uint64 `json:"to"`
			Error string `json:"error"`
		}
		if json.Unmarshal(data, &f) != nil {
			continue
		}
		switch f.Type {
		case "gap":
			fmt.Fprintf(t.notes, "\r\n[%d bytes of output are gone]\r\n", f.To-f.From)
		case "error":
			fmt.Fprintf(t.notes, "\r\n[%s]\r\n", printable(f.Error))
		}
	}
}
