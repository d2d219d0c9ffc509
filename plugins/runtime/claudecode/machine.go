package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// machine is one session as the plugin sees it: what the CLI prints and what
// the host says goes in, messages for the host come out. It does nothing else,
// knows no clock but the time that it is given, and all that it must not forget
// is in its state.
type machine struct {
	interrupting bool // what is written now interrupts the agent for a stop
	st           state
	fresh        bool // the session is a new one for the CLI, too
	opts         sessionOptions
	now          time.Time
	live         bool // the replay is over
	out          []*pluginv1.RunResponse

	unfit     error             // why the session cannot be followed
	until     uint64            // what is before it is in the state already
	reopen    map[string]bool   // requests before it that are read again
	asks      map[string]uint64 // requests without an answer, and where their lines begin
	seq       int
	partial   []byte // a line whose end has not come
	partialAt uint64
	cut       bool // the next line may be the rest of one that is dealt with
	bad       int  // lines that are no JSON
	stderr    []byte

	greeting *initialized
	ruled    bool
	news     *pluginv1.Progress // held back, so that there is at most one a second
	told     time.Time
	closeAt  time.Time
}

// sessionOptions are what a session needs of the configuration.
type sessionOptions struct {
	prompt  string // the first message of a new session
	servers []string
	resume  bool          // go on after a crash of the CLI
	hold    time.Duration // how long a question waits with the CLI kept running; 0 = as long as it takes
}

// Limits of what is read.
const (
	maxLine   = 64 << 20 // a line in parts
	maxStderr = 4 << 10
	maxBad    = 10
	oneSecond = time.Second
)

// newMachine begins a stream. The state of an earlier session of the mission is
// the begin of this one.
func newMachine(open *pluginv1.Open, opts sessionOptions) *machine {
	session, resumed, noSession := sessionOf(open.GetPlan().GetArgv())
	old, noState := readState(open.GetState())
	if old == nil && noState == nil { // what Plan has carried over from the session before
		old, noState = readState([]byte(open.GetPlan().GetEnv()[resumeEnv]))
	}
	m := &machine{fresh: !resumed, opts: opts, reopen: map[string]bool{}, asks: map[string]uint64{}, cut: open.GetOffset() > 0}
	m.unfit = errors.Join(noSession, noState)
	switch {
	case old == nil:
		m.st = state{V: stateVersion, Session: session, Generation: open.GetGeneration()}
	case old.Generation != open.GetGeneration():
		m.st = *old.next(nil)
		m.st.Session, m.st.Generation = session, open.GetGeneration()
	default:
		m.st = *old
		m.until = m.st.At
		for _, id := range m.st.Open {
			m.reopen[id] = true
		}
		for id, c := range m.st.Calls {
			c.ID, c.maybe = id, true
			c.Pre, c.Can, c.Post = "", "", "" // read again
			m.seq = max(m.seq, c.Seq)
		}
	}
	return m
}

// start is what a stream begins with.
func (m *machine) start(now time.Time, offset uint64) []*pluginv1.RunResponse {
	m.now = now
	if m.unfit != nil {
		m.fatal("the session cannot be followed: " + m.unfit.Error())
	} else if m.st.Fatal != "" { // the host may have been away when it was said
		m.problem(true, m.st.Fatal)
	}
	if !m.st.Started {
		m.st.Started = true
		m.st.At = max(m.st.At, offset)
		summary := "Claude Code is started"
		if !m.fresh {
			summary = "Claude Code is started again in its session"
		}
		m.report("planning", summary)
		m.checkpoint()
	}
	if !m.st.Ready && m.st.Fatal == "" {
		m.write("initialize", initialize())
		m.write("rules", listRules())
	}
	return m.take()
}

// handle takes one message of the host.
func (m *machine) handle(in *pluginv1.RunRequest, now time.Time) []*pluginv1.RunResponse {
	m.now = now
	switch x := in.GetMessage().(type) {
	case *pluginv1.RunRequest_Output:
		m.output(x.Output)
	case *pluginv1.RunRequest_CaughtUp:
		m.live = true
		m.advanceAll()
	case *pluginv1.RunRequest_Verdict:
		m.verdict(x.Verdict)
	case *pluginv1.RunRequest_Admitted:
		m.gotAdmitted(x.Admitted)
	case *pluginv1.RunRequest_Refused:
		m.refused(x.Refused)
	case *pluginv1.RunRequest_Answer:
		m.answer(x.Answer)
	case *pluginv1.RunRequest_Interrupt:
		m.interrupt()
	case *pluginv1.RunRequest_Suspend:
		m.checkpoint()
	case *pluginv1.RunRequest_Exit:
		m.exit(x.Exit)
	}
	m.flush(false)
	return m.take()
}

// tick does what waits for a time; see wake.
func (m *machine) tick(now time.Time) []*pluginv1.RunResponse {
	m.now = now
	if !m.closeAt.IsZero() && !now.Before(m.closeAt) {
		m.closeInput()
	}
	m.advanceAll()
	m.flush(false)
	return m.take()
}

// wake is when tick has something to do; zero = never.
func (m *machine) wake() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, c := range m.st.Calls {
		if c.retry.After(m.now) {
			earlier(c.retry)
		}
		if c.letGoAt.After(m.now) {
			earlier(c.letGoAt)
		}
	}
	if m.news != nil {
		earlier(m.told.Add(oneSecond))
	}
	earlier(m.closeAt)
	return at
}

func (m *machine) take() []*pluginv1.RunResponse {
	out := m.out
	m.out = nil
	return out
}

// output cuts a piece of output into lines.
func (m *machine) output(o *pluginv1.Output) {
	data, at := o.GetData(), o.GetOffset()
	if o.GetStream() == pluginv1.Stream_STREAM_STDERR {
		m.stderr = append(m.stderr, data...)
		m.stderr = m.stderr[max(0, len(m.stderr)-maxStderr):]
		return
	}
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n') + 1
		if n == 0 {
			if len(m.partial) == 0 {
				m.partialAt = at
			}
			m.partial = append(m.partial, data...)
			if len(m.partial) > maxLine {
				m.partial = nil
				m.fatal(fmt.Sprintf("Claude Code printed a line of more than %d MiB; it cannot be followed", maxLine>>20))
			}
			return
		}
		text, from := data[:n], at
		if len(m.partial) > 0 {
			text, from = append(m.partial, text...), m.partialAt
			m.partial = nil
		}
		data, at = data[n:], at+uint64(n)
		m.line(bytes.TrimSpace(text), from)
		m.st.At = max(m.st.At, at)
	}
}

// line takes one line that begins at an offset.
func (m *machine) line(text []byte, at uint64) {
	cut := m.cut
	m.cut = false
	if len(text) == 0 {
		return
	}
	var f frame
	if err := json.Unmarshal(text, &f); err != nil || f.Type == "" {
		switch {
		case cut || at < m.until: // the rest of a line, or one that was reported
		case text[0] == '{' && m.st.Ready && bytes.Contains(text[:min(len(text), 64)], []byte("control_request")):
			m.fatal("Claude Code asked something that cannot be read: " + excerpt(text))
		default:
			m.garbage(text)
		}
		return
	}
	if at < m.until && (f.Type != "control_request" || !m.reopen[f.RequestID]) {
		return
	}
	switch f.Type {
	case "control_request":
		m.request(&f, at)
	case "control_cancel_request":
		m.cancel(f.RequestID)
	case "control_response":
		m.response(f.Response)
	case "assistant":
		m.assistant(&f)
	case "user":
		m.user(&f)
	case "system":
		m.system(&f)
	case "result":
		m.result(text)
	}
}

// garbage is a line that is none of the CLI's protocol.
func (m *machine) garbage(text []byte) {
	m.bad++
	if m.bad > maxBad {
		m.fatal("something that is not Claude Code's protocol keeps coming on its standard output; the last of it: " + excerpt(text))
		return
	}
	m.problem(false, "a line on Claude Code's standard output is not of its protocol and was ignored: "+excerpt(text))
}

// excerpt is the begin of a text, for people.
func excerpt(text []byte) string {
	return fmt.Sprintf("%.120q", bytes.ToValidUTF8(text[:min(len(text), 400)], []byte("?")))
}

// The messages that go out.

func (m *machine) send(r *pluginv1.RunResponse) { m.out = append(m.out, r) }

func (m *machine) write(key string, data []byte) {
	if m.st.Closed {
		return
	}
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Write{Write: &pluginv1.Write{Key: key, Data: data, Interrupt: m.interrupting}}})
}

// respond answers a request of the CLI.
func (m *machine) respond(requestID string, body any) {
	m.write("answer/"+requestID, success(requestID, body))
	delete(m.asks, requestID)
}

func (m *machine) closeInput() {
	m.closeAt = time.Time{}
	if m.st.Closed {
		return
	}
	m.st.Closed = true
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_CloseInput{CloseInput: &pluginv1.CloseInput{}}})
	m.checkpoint()
}

func (m *machine) problem(fatal bool, text string) {
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Problem{Problem: &pluginv1.Problem{Fatal: fatal, Message: text}}})
}

// fatal ends a session that cannot go on: nothing is let through any more, and
// the end of its input ends the CLI.
func (m *machine) fatal(text string) {
	if m.st.Fatal != "" {
		return
	}
	m.st.Fatal = text
	m.problem(true, text)
	for _, c := range m.sorted() {
		m.advance(c)
	}
	m.closeInput()
}

// checkpoint stores the state. Output is read again from the first request
// that has no answer, for its contents.
func (m *machine) checkpoint() {
	m.st.Open = slices.Sorted(maps.Keys(m.asks))
	offset := m.st.At
	for _, at := range m.asks {
		offset = min(offset, at)
	}
	b, err := json.Marshal(&m.st)
	if err != nil || len(b) > 1<<20 {
		m.problem(false, fmt.Sprintf("the state of the session could not be stored (%d bytes, error %v); after a restart more of the output is read again", len(b), err))
		return
	}
	m.send(&pluginv1.RunResponse{Message: &pluginv1.RunResponse_Checkpoint{Checkpoint: &pluginv1.Checkpoint{State: b, Offset: offset}}})
}
