package engine

import (
	"encoding/json"
	"fmt"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// wishes puts the intent and the plan of a dispatch into its opening: those of
// its metadata, else the agent block's (rulings 19, 28).
func (e *Engine) wishes(o *mission.Opened, d Dispatch, cfg config.Agent) error {
	var meta struct {
		Intent json.RawMessage `json:"intent"`
		Plan   json.RawMessage `json:"plan"`
	}
	if len(d.Metadata) > 0 {
		// Metadata is free: what is not an object has no intent.
		_ = json.Unmarshal(d.Metadata, &meta)
	}
	if len(meta.Plan) > 0 && string(meta.Plan) != "null" {
		var steps []json.RawMessage
		if json.Unmarshal(meta.Plan, &steps) == nil {
			o.Plan = meta.Plan
		}
	}
	if len(meta.Intent) > 0 && string(meta.Intent) != "null" {
		env := &governance.Envelope{}
		if err := json.Unmarshal(meta.Intent, env); err != nil {
			return fmt.Errorf("metadata.intent: %w", err)
		}
		o.Intent = complete(env, d.Objective, string(d.Origin))
		return o.Intent.Valid()
	}
	if cfg.Intent == nil {
		return nil
	}
	env := &governance.Envelope{Goal: cfg.Intent.Goal, Constraints: map[string]json.RawMessage{}}
	for name, v := range cfg.Intent.Constraints {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("intent of agent %q: constraints.%s: %w", cfg.Name, name, err)
		}
		env.Constraints[name] = text
	}
	o.Intent = complete(env, d.Objective, "airlock")
	return nil
}

// complete fills in what a short envelope leaves open.
func complete(env *governance.Envelope, goal, by string) *governance.Envelope {
	if env.ID == "" {
		env.ID = newUUID()
	}
	if env.Goal == "" {
		env.Goal = goal
	}
	if env.RequestedBy.Type == "" {
		env.RequestedBy.Type = "system"
	}
	if env.RequestedBy.ID == "" {
		env.RequestedBy.ID = by
	}
	if env.Constraints == nil {
		env.Constraints = map[string]json.RawMessage{}
	}
	return env
}
