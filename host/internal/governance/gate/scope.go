package gate

import (
	"encoding/json"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/airlock-host/airlock/config/condition"
	"github.com/airlock-host/airlock/host/internal/governance"
)

// scope is what conditions see. A variable is made when the first condition
// that reads it is evaluated.
type scope struct {
	in   Input
	args value
	read *reads
	vars map[string]cty.Value
	errs map[string]error
}

func newScope(in Input, args value, read *reads) scope { return scope{in: in, args: args, read: read} }

// reads are the top-level arguments that the conditions for a tool read: a file
// of 1 MiB in another one costs nothing.
type reads struct {
	all   bool
	names map[string]bool
}

func (r *reads) add(c *condition.Condition) {
	if c == nil {
		return
	}
	names, all := c.Args()
	r.all = r.all || all
	for _, n := range names {
		if r.names == nil {
			r.names = map[string]bool{}
		}
		r.names[n] = true
	}
}

// arguments are the arguments that are read.
func (s *scope) arguments() (cty.Value, error) {
	if s.read.all {
		return s.args.cty()
	}
	out, seen := map[string]cty.Value{}, map[string]bool{}
	for i, key := range s.args.keys {
		normal := cty.NormalizeString(key)
		if seen[normal] {
			return cty.NilVal, condition.ErrSameKey
		}
		seen[normal] = true
		if !s.read.names[normal] {
			continue
		}
		v, err := s.args.members[i].cty()
		if err != nil {
			return cty.NilVal, err
		}
		out[normal] = v
	}
	return condition.Object(out)
}

// holds evaluates a condition; nil holds always.
func (s *scope) holds(c *condition.Condition) (bool, error) {
	if c == nil {
		return true, nil
	}
	if s.vars == nil {
		s.vars, s.errs = make(map[string]cty.Value, 6), map[string]error{}
	}
	for _, name := range condition.Variables() {
		if !c.Uses(name) {
			continue
		}
		if _, made := s.vars[name]; !made && s.errs[name] == nil {
			v, err := s.variable(name)
			if err != nil {
				s.errs[name] = err
			} else {
				s.vars[name] = v
			}
		}
		if err := s.errs[name]; err != nil {
			return false, err
		}
	}
	return c.Eval(s.vars)
}

func (s *scope) variable(name string) (cty.Value, error) {
	switch name {
	case "tool":
		return cty.StringVal(s.in.Tool), nil
	case "args":
		return s.arguments()
	case "agent":
		return cty.StringVal(s.in.Mission.Agent), nil
	case "mission":
		m := s.in.Mission
		return cty.ObjectVal(map[string]cty.Value{"id": cty.StringVal(m.ID), "agent": cty.StringVal(m.Agent),
			"runtime": cty.StringVal(m.Runtime), "objective": cty.StringVal(m.Objective)}), nil
	case "intent":
		return intentValue(s.in.Intent)
	}
	out := make([]cty.Value, len(s.in.History))
	for i, h := range s.in.History {
		out[i] = cty.ObjectVal(map[string]cty.Value{"tool": cty.StringVal(h.Tool), "status": cty.StringVal(h.Status)})
	}
	return cty.TupleVal(out), nil
}

// intentValue is the envelope; null when there is none. expires is a string in
// RFC 3339, or null.
func intentValue(in *governance.Envelope) (cty.Value, error) {
	if in == nil {
		return cty.NullVal(cty.DynamicPseudoType), nil
	}
	object := func(m map[string]json.RawMessage) (cty.Value, error) {
		out := make(map[string]cty.Value, len(m))
		for k, raw := range m {
			v, err := parseJSON(raw)
			if err != nil {
				return cty.NilVal, err
			}
			if out[k], err = v.cty(); err != nil {
				return cty.NilVal, err
			}
		}
		return condition.Object(out)
	}
	constraints, err := object(in.Constraints)
	if err != nil {
		return cty.NilVal, err
	}
	metadata, err := object(in.Metadata)
	if err != nil {
		return cty.NilVal, err
	}
	grants := make(map[string]cty.Value, len(in.Authority))
	for k, v := range in.Authority {
		grants[k] = cty.BoolVal(v)
	}
	authority, err := condition.Object(grants)
	if err != nil {
		return cty.NilVal, err
	}
	expires := cty.NullVal(cty.String)
	if in.Expires != nil {
		expires = cty.StringVal(in.Expires.UTC().Format(time.RFC3339Nano))
	}
	return cty.ObjectVal(map[string]cty.Value{
		"id": cty.StringVal(in.ID), "goal": cty.StringVal(in.Goal), "constraints": constraints, "authority": authority, "expires": expires, "metadata": metadata,
		"requested_by": cty.ObjectVal(map[string]cty.Value{"type": cty.StringVal(in.RequestedBy.Type), "id": cty.StringVal(in.RequestedBy.ID)}),
	}), nil
}
