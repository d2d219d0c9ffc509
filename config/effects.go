package config

import "strings"

// Effect is when a change of the configuration counts on a host that runs.
type Effect string

// The effects of a reload.
const (
	// Applied: it holds from now on.
	Applied Effect = "applied"
	// NextMission: missions that run keep what they started with.
	NextMission Effect = "next_mission"
	// RestartNeeded: the host goes on with what it was started with.
	RestartNeeded Effect = "restart_needed"
)

// effects says for blocks and attributes when a change of them counts; the
// longest name that fits decides.
func effects() map[string]Effect {
	return map[string]Effect{
		"name": RestartNeeded, "data_dir": RestartNeeded, "run_dir": RestartNeeded, "uid_range": RestartNeeded, "orphan_ttl": Applied,
		"listen": RestartNeeded, "orchestrator": RestartNeeded, "orchestrator.approvals": Applied,
		"plugins": RestartNeeded, "tls": RestartNeeded, "telemetry": RestartNeeded, "retention": RestartNeeded,
		"isolation": Applied, "runtime": Applied, "revoker": Applied, "gateway": Applied, "operator": Applied,
		"agent": NextMission, "agent.slots": Applied, "agent.queue": Applied, "agent.warm": Applied,
		"governance":         Applied,
		"governance.restore": NextMission, "governance.max_resumes": NextMission,
		"governance.approval_timeout": NextMission, "governance.approval_hold": NextMission,
		"governance.budget": NextMission, "governance.head": RestartNeeded,
	}
}

// effectOf is the effect of a block or an attribute, named by the path of its
// block: "agent.resources", "memory".
func effectOf(block, attr string) Effect {
	table := effects()
	name := strings.Trim(block+"."+attr, ".")
	for name != "" {
		if e, ok := table[name]; ok {
			return e
		}
		i := strings.LastIndexByte(name, '.')
		name = name[:max(i, 0)]
	}
	return ""
}
