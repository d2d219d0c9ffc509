package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/airlock-host/airlock/host/internal/engine"
	"github.com/airlock-host/airlock/host/internal/jsontext"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// maxMissionID is the longest mission id, in characters.
const maxMissionID = 300

// fieldError says which member of a body is wrong, and how.
type fieldError struct {
	Field string // "executor_filter.capabilities"; empty: the body
	Why   string
}

func (e *fieldError) Error() string {
	if e.Field == "" {
		return "the body " + e.Why
	}
	return e.Field + " " + e.Why
}

// decodeDispatch reads a dispatch body: missing members, nulls and unknown
// members are fine; duplicate members, wrong types and text that would not
// survive decoding are a *fieldError.
func decodeDispatch(raw []byte) (engine.Dispatch, error) {
	if err := checkJSON(raw); err != nil {
		return engine.Dispatch{}, err
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil || top == nil {
		return engine.Dispatch{}, &fieldError{Why: "is not a JSON object"}
	}
	r := reader{members: top}
	d := engine.Dispatch{
		MissionID:   r.text("mission_id"),
		Origin:      mission.OriginOrchestrator,
		Objective:   r.text("objective"),
		Completion:  r.text("completion"),
		LongRunning: r.flag("long_running"),
		Metadata:    r.object("metadata"),
	}
	if raw := r.object("executor_filter"); raw != nil {
		f := reader{prefix: "executor_filter.", err: r.err}
		_ = json.Unmarshal(raw, &f.members)
		d.AgentID = f.text("agent_id")
		d.Capabilities = f.texts("capabilities")
		f.text("executor_id") // the orchestrator's own filter; only its type matters here
		r.err = f.err
	}
	if raw := d.Metadata; raw != nil {
		// Metadata is free-form: a member of another type is just not a session id.
		var m map[string]json.RawMessage
		_ = json.Unmarshal(raw, &m)
		for _, name := range []string{"session_id", "mc_session_id"} {
			if d.SessionID == "" && len(m[name]) > 0 && m[name][0] == '"' {
				_ = json.Unmarshal(m[name], &d.SessionID)
			}
		}
	}
	n := utf8.RuneCountInString(d.MissionID)
	switch {
	case r.err != nil:
		return engine.Dispatch{}, r.err
	case n == 0:
		return engine.Dispatch{}, &fieldError{"mission_id", "is missing"}
	case n > maxMissionID:
		return engine.Dispatch{}, &fieldError{"mission_id", fmt.Sprintf("has more than %d characters", maxMissionID)}
	case d.Objective == "":
		return engine.Dispatch{}, &fieldError{"objective", "is missing"}
	}
	payload, err := canonical(raw)
	if err != nil {
		return engine.Dispatch{}, &fieldError{Why: "cannot be read: " + err.Error()}
	}
	d.Payload = payload
	return d, nil
}

// reader takes members out of an object; the first error stays.
type reader struct {
	members map[string]json.RawMessage
	prefix  string
	err     error
}

func (r *reader) take(name, kind string, ok func(first byte) bool, into any) {
	raw, has := r.members[name]
	if !has || r.err != nil || string(raw) == "null" {
		return
	}
	if !ok(raw[0]) || json.Unmarshal(raw, into) != nil {
		r.err = &fieldError{r.prefix + name, "is not " + kind}
	}
}

func is(b byte) func(byte) bool { return func(first byte) bool { return first == b } }

func (r *reader) text(name string) (s string) {
	r.take(name, "a string", is('"'), &s)
	return s
}

func (r *reader) flag(name string) (b bool) {
	r.take(name, "a boolean", func(c byte) bool { return c == 't' || c == 'f' }, &b)
	return b
}

func (r *reader) texts(name string) (out []string) {
	var items []*string // a null item is not a string
	r.take(name, "an array of strings", is('['), &items)
	for _, s := range items {
		if s == nil {
			r.err = &fieldError{r.prefix + name, "is not an array of strings"}
			return nil
		}
		out = append(out, *s)
	}
	return out
}

func (r *reader) object(name string) (raw json.RawMessage) {
	r.take(name, "an object", is('{'), &raw)
	return raw
}

// canonical is a body's form that does not depend on the order of members, on
// white space, or on whether a member is null or missing where the two mean the
// same.
func canonical(raw []byte) ([]byte, error) {
	v, err := jsontext.Members(raw)
	if err != nil {
		return nil, err
	}
	dropNulls(v)
	if f, ok := v["executor_filter"].(map[string]any); ok {
		dropNulls(f)
	}
	return jsontext.Write(v)
}

func dropNulls(m map[string]any) {
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
	}
}

var errTooDeep = errors.New("is nested too deeply")
