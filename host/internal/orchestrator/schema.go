package orchestrator

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

func registerSchema(generation int) object {
	o := object{
		required: []string{"executor_id", "name", "version", "spec_version", "transport_endpoints", "capabilities"},
		members: map[string]rule{
			"executor_id":  uuidText,
			"name":         text(1, 128),
			"version":      text(1, 64),
			"spec_version": word("1.0.0"),
			"transport_endpoints": object{
				required: []string{"rest", "ws"},
				members:  map[string]rule{"rest": uri, "ws": uri, "grpc": uri},
			}.check,
			"capabilities": list(true, capability),
		},
	}
	if generation >= 2 {
		o.members["a2a_instance_id"] = text(0, 0)
	}
	return o
}

func dispatchSchema(generation int, agentID bool) object {
	filter := object{members: map[string]rule{
		"executor_id":  orNull(uuidText),
		"capabilities": list(true, capability),
	}}
	o := object{
		required: []string{"mission_id", "objective", "completion"},
		members: map[string]rule{
			"mission_id":   text(1, 0),
			"objective":    text(1, 0),
			"completion":   text(1, 0),
			"long_running": boolean,
			"metadata":     anyObject,
		},
	}
	if generation >= 2 {
		o.members["a2a_instance_id"] = orNull(text(0, 0))
		filter.members["a2a_instance_id"] = orNull(text(0, 0))
		filter.members["instance_id"] = orNull(text(0, 0))
	}
	if agentID {
		filter.members["agent_id"] = orNull(text(1, 0))
	}
	o.members["executor_filter"] = filter.check
	return o
}

var sandboxSchema = object{
	required: []string{"name", "grpc_endpoint", "ws_endpoint", "http_endpoint"},
	members: map[string]rule{
		"name": text(1, 0), "grpc_endpoint": uri, "ws_endpoint": uri, "http_endpoint": uri,
		"instance_id": text(1, 0), "capabilities": list(true, text(1, 0)), "version": text(1, 0),
	},
}

// shapes are the 15 data shapes of the contract's section 3, by event word.
var shapes = func() map[string]object {
	state := func(s string) rule { return word(s) }
	count := number(0, math.MaxInt64, true)
	whole := number(math.MinInt64, math.MaxInt64, true)
	any1 := text(0, 0)
	return map[string]object{
		"executor.registered": {required: []string{"name", "capabilities"}, members: map[string]rule{
			"name": any1, "capabilities": list(false, any1), "transport_endpoints": anyObject}},
		"executor.deregistered": {required: []string{"reason"}, members: map[string]rule{
			"reason": word("graceful_shutdown", "operator_deleted", "timeout")}},
		"executor.resync": {required: []string{"owned_mission_ids"}, members: map[string]rule{
			"owned_mission_ids": list(true, text(1, 0)), "protocol_version": any1}},
		"mission.assigned": {required: []string{"state"}, members: map[string]rule{
			"state": state("assigned"), "estimated_start": timestamp}},
		"mission.started": {required: []string{"state"}, members: map[string]rule{
			"state": state("running"), "agent_runtime": any1, "pty_session_id": any1}},
		"mission.progress": {members: map[string]rule{
			"phase": any1, "iteration": count, "tokens_used": count, "summary": any1, "pct_complete": number(0, 100, false)}},
		"mission.hitl_required": {required: []string{"hitl_id", "prompt"}, members: map[string]rule{
			"hitl_id": text(1, 0), "prompt": text(1, 0), "context": any1, "expires_at": timestamp}},
		"mission.hitl_responded": {required: []string{"hitl_id", "response"}, members: map[string]rule{
			"hitl_id": any1, "response": text(1, 0), "responded_at": timestamp}},
		"mission.paused": {required: []string{"state"}, members: map[string]rule{
			"state": state("paused"), "reason": any1}},
		"mission.resumed": {required: []string{"state"}, members: map[string]rule{
			"state": state("running"), "resumed_from": word("paused", "suspended")}},
		"mission.suspended": {required: []string{"state", "checkpoint_id"}, members: map[string]rule{
			"state": state("suspended"), "checkpoint_id": text(1, 0), "reason": any1}},
		"mission.reconnected": {required: []string{"checkpoint_id"}, members: map[string]rule{
			"checkpoint_id": any1}},
		"mission.completed": {required: []string{"state"}, members: map[string]rule{
			"state": state("done"), "exit_code": whole, "tokens_total": count, "summary": any1,
			"artifacts": list(false, object{required: []string{"path"}, members: map[string]rule{
				"path": any1, "description": any1}}.check)}},
		"mission.failed": {required: []string{"state", "reason"}, members: map[string]rule{
			"state": state("failed"), "reason": text(1, 0), "error": any1, "exit_code": whole, "tokens_total": count}},
		"mission.aborted": {required: []string{"state"}, members: map[string]rule{
			"state": state("aborted"), "aborted_by": word("operator", "system"), "reason": any1}},
	}
}()

// fromExecutor are the words that an executor may send.
var fromExecutor = []string{
	"executor.resync", "mission.assigned", "mission.started", "mission.progress", "mission.hitl_required",
	"mission.paused", "mission.resumed", "mission.suspended", "mission.reconnected",
	"mission.completed", "mission.failed", "mission.aborted",
}

var envelopeSchema = object{
	required: []string{"event", "executor_id", "ts"},
	members: map[string]rule{
		"event":       text(1, 0),
		"executor_id": uuidText,
		"ts":          timestamp,
		"mission_id":  text(1, 0),
		"data":        anyObject,
	},
}

var utcMillis = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// CheckFrame checks one frame of an executor. dropped says why serve run from
// source would drop it; strict lists what serve lets pass and Airlock must not
// send (another event's shape, a time that is not UTC with milliseconds, a
// mission event without its mission).
func CheckFrame(frame []byte) (dropped string, strict []string) {
	var v any
	if err := json.Unmarshal(frame, &v); err != nil {
		return "is not JSON", nil
	}
	if why := envelopeSchema.check(v); why != "" {
		return why, nil
	}
	m := v.(map[string]any)
	event, _ := m["event"].(string)
	if _, ok := shapes[event]; !ok {
		return fmt.Sprintf("event %q is not in the vocabulary", event), nil
	}
	data, has := m["data"]
	if has {
		if why := checkOneOf(data); why != "" {
			return "data " + why, nil
		}
	} else {
		data = map[string]any{}
	}
	if !slices.Contains(fromExecutor, event) {
		strict = append(strict, event+" is not an executor's event")
	}
	if why := shapes[event].check(data); why != "" {
		strict = append(strict, "data is not of "+event+": "+why)
	}
	if ts, _ := m["ts"].(string); !utcMillis.MatchString(ts) {
		strict = append(strict, "ts is not UTC with milliseconds: "+ts)
	}
	if _, ok := m["mission_id"]; !ok && strings.HasPrefix(event, "mission.") {
		strict = append(strict, event+" without a mission_id")
	}
	return "", strict
}

// checkOneOf holds data against all shapes: exactly one must match.
func checkOneOf(data any) string {
	var match []string
	for name, shape := range shapes {
		if shape.check(data) == "" {
			match = append(match, name)
		}
	}
	switch len(match) {
	case 1:
		return ""
	case 0:
		return "matches no shape"
	default:
		slices.Sort(match)
		return "matches more than one shape: " + strings.Join(match, ", ")
	}
}
