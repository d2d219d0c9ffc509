package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"syscall"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// ending is what the CLI says of the end of its work. Its subtype is not
// enough: a failure of the API comes as "success" with is_error.
type ending struct {
	Subtype  string   `json:"subtype,omitempty"`
	IsError  bool     `json:"is_error,omitempty"`
	Terminal string   `json:"terminal,omitempty"` // terminal_reason
	Stop     string   `json:"stop,omitempty"`     // stop_reason
	Status   int      `json:"status,omitempty"`   // api_error_status
	Text     string   `json:"text,omitempty"`
	Errors   []string `json:"errors,omitempty"`
	Turns    int64    `json:"turns,omitempty"`
}

// totals are the running totals of a session.
type totals struct{ tokens, costMicro int64 }

func readEnding(text []byte) (*ending, totals) {
	var r struct {
		Subtype    string   `json:"subtype"`
		IsError    *bool    `json:"is_error"`
		Terminal   string   `json:"terminal_reason"`
		Stop       string   `json:"stop_reason"`
		Status     int      `json:"api_error_status"`
		Result     string   `json:"result"`
		Errors     []string `json:"errors"`
		Turns      int64    `json:"num_turns"`
		Cost       float64  `json:"total_cost_usd"`
		Usage      usage    `json:"usage"`
		ModelUsage map[string]struct {
			Input      int64 `json:"inputTokens"`
			Output     int64 `json:"outputTokens"`
			CacheRead  int64 `json:"cacheReadInputTokens"`
			CacheWrite int64 `json:"cacheCreationInputTokens"`
		} `json:"modelUsage"`
	}
	if json.Unmarshal(text, &r) != nil || r.IsError == nil {
		return nil, totals{}
	}
	e := &ending{Subtype: r.Subtype, IsError: *r.IsError, Terminal: r.Terminal, Stop: r.Stop, Status: r.Status,
		Text: clip(firstLine(r.Result), 300), Turns: r.Turns}
	for _, s := range r.Errors {
		e.Errors = append(e.Errors, clip(s, 200))
	}
	e.Errors = e.Errors[:min(len(e.Errors), 5)]
	var t totals
	for _, u := range r.ModelUsage {
		t.tokens += max(0, u.Input) + max(0, u.Output) + max(0, u.CacheRead) + max(0, u.CacheWrite)
	}
	if len(r.ModelUsage) == 0 {
		t.tokens = max(0, r.Usage.total())
	}
	if r.Cost > 0 && r.Cost < 1e9 {
		t.costMicro = int64(math.Round(r.Cost * 1e6))
	}
	return e, t
}

func (e *ending) deferred() bool { return e.Terminal == "tool_deferred" || e.Stop == "tool_deferred" }

func (e *ending) lost() bool {
	return strings.Contains(strings.Join(e.Errors, " "), "No conversation found")
}

// line is one line for people.
func (e *ending) line() string {
	switch {
	case e.deferred():
		return "a call waits for a human; the session goes on once it is decided"
	case e.IsError:
		return e.trouble()
	case e.Text != "":
		return e.Text
	default:
		return "Claude Code has finished"
	}
}

// trouble says what went wrong, to an operator.
func (e *ending) trouble() string {
	said := ""
	if e.Text != "" {
		said = ": " + e.Text
	} else if len(e.Errors) > 0 {
		said = ": " + e.Errors[0]
	}
	switch {
	case e.Terminal == "max_turns" || e.Subtype == "error_max_turns":
		return fmt.Sprintf("the agent used up its turns (max_turns) after %d of them", e.Turns)
	case e.Terminal == "budget_exhausted" || e.Subtype == "error_max_budget_usd":
		return "the agent used up its budget (max_budget_usd of the runtime)"
	case strings.HasPrefix(e.Terminal, "aborted"):
		return "the agent was interrupted"
	case e.fromGateway() && e.overBudget():
		return "the gateway let no more through: the mission's budget is used up" + said
	case e.fromGateway():
		return "the gateway refused a model call" + said
	case e.Status == 401 || e.Status == 403:
		return fmt.Sprintf("the model API refused the credential (%d); look at the header block of the gateway%s", e.Status, said)
	case e.Status == 404:
		return "the model API does not know the model or the path (404); look at model and at the gateway's upstream" + said
	case e.Status == 400 || e.Status == 413 || e.Status == 422:
		return fmt.Sprintf("the model API refused the request (%d)%s", e.Status, said)
	case e.Status == 429:
		return "the model API limits the rate, and went on doing so through all retries (429)" + said
	case e.Status == 529:
		return "the model API is overloaded, and was so through all retries (529)" + said
	case e.Status >= 500:
		return fmt.Sprintf("the model API failed through all retries (%d)%s", e.Status, said)
	case e.Terminal == "api_error":
		return "the model API could not be reached" + said
	case e.lost():
		return "Claude Code does not have the session any more" + said
	default:
		return "Claude Code ended with an error" + said
	}
}

// fromGateway: the answer was the host's own, not the model API's.
func (e *ending) fromGateway() bool { return e.Status != 0 && strings.Contains(e.Text, "airlock: ") }

func (e *ending) overBudget() bool {
	return e.Status == 403 && e.fromGateway() && strings.Contains(e.Text, "budget")
}

// reason is the word of the contract.
func (e *ending) reason() string {
	switch {
	case e.Terminal == "max_turns", e.Terminal == "budget_exhausted", e.overBudget(),
		e.Subtype == "error_max_turns", e.Subtype == "error_max_budget_usd":
		return reasonBudget
	default:
		return reasonCode
	}
}

// Reasons of rulings 6.
const (
	reasonCode     = "non_zero_exit"
	reasonSignal   = "signal"
	reasonUnknown  = "exit_unknown"
	reasonDispatch = "dispatch_error"
	reasonBudget   = "budget"
)

// outcome is the mission's result in our view, and what follows.
func (m *machine) outcome(x *pluginv1.Exit) *pluginv1.Result {
	e, clean := m.st.Result, x.GetCode() == 0 && x.GetSignal() == 0 && !x.GetUnknown() && x != nil
	switch {
	case m.st.Fatal != "":
		return fails(reasonDispatch, m.st.Fatal)
	case m.st.Interrupted:
		return fails(m.exitReason(x), "the agent was interrupted")
	case e != nil && e.deferred():
		m.st.After = afterDeferred
		return &pluginv1.Result{Summary: e.line(), Continuation: pluginv1.Continuation_CONTINUATION_RESUME_WHEN_DECIDED}
	case e != nil && e.lost():
		m.st.After = afterLost
		return m.resumes(reasonCode, "Claude Code has lost its session; the mission begins anew in another one")
	case e != nil && e.IsError:
		return fails(e.reason(), e.trouble())
	case e != nil && clean:
		return &pluginv1.Result{Ok: true, Summary: e.line()}
	case e == nil && !m.st.Ready && !clean && x.GetSignal() == 0 && !x.GetUnknown():
		if strings.Contains(string(m.stderr), "is already in use") { // an earlier session that nobody knows of
			m.st.After = afterCrash
			return m.resumes(reasonCode, "the session of Claude Code is there already; it is gone on with")
		}
		return fails(reasonDispatch, fmt.Sprintf("Claude Code could not begin (exit code %d)%s", x.GetCode(), m.lastWords()))
	case e == nil && clean:
		return fails(reasonUnknown, "Claude Code ended without saying how"+m.lastWords())
	}
	m.st.After = afterCrash
	how := fmt.Sprintf("Claude Code ended with exit code %d in the middle of its work", x.GetCode())
	switch {
	case x == nil || x.GetUnknown():
		how = "nobody knows how Claude Code ended"
	case x.GetSignal() != 0:
		how = fmt.Sprintf("Claude Code was ended by signal %d (%s)", x.GetSignal(), syscall.Signal(x.GetSignal()))
		if x.GetOom() {
			how += ": out of memory; it needs 512 MiB, and what its tools need"
		}
	}
	return m.resumes(m.exitReason(x), how+m.lastWords())
}

// resumes is a result after which the host starts another session, unless the
// operator wants none.
func (m *machine) resumes(reason, summary string) *pluginv1.Result {
	r := fails(reason, summary)
	if m.opts.resume {
		r.Continuation = pluginv1.Continuation_CONTINUATION_RESUME
	}
	return r
}

func (m *machine) exitReason(x *pluginv1.Exit) string {
	switch {
	case x == nil || x.GetUnknown():
		return reasonUnknown
	case x.GetSignal() != 0:
		return reasonSignal
	case x.GetCode() != 0:
		return reasonCode
	}
	return ""
}

// lastWords is the end of what it printed to standard error.
func (m *machine) lastWords() string {
	lines := strings.Split(strings.TrimSpace(string(m.stderr)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return ": " + clip(last, 300)
	}
	return ""
}

func fails(reason, summary string) *pluginv1.Result {
	return &pluginv1.Result{Reason: reason, Summary: summary, Continuation: pluginv1.Continuation_CONTINUATION_END}
}
