package engine

import (
	"encoding/json"
	"runtime"
	"strings"
	"time"

	"github.com/airlock-host/airlock/config"
	"github.com/airlock-host/airlock/host/internal/cells"
)

// spec is an agent block as it was when the mission was taken in; the mission
// keeps it whatever the configuration says later (decision 14).
type spec struct {
	Cell            cells.Spec    `json:"cell"`
	Runtime         string        `json:"runtime"`
	MaxResumes      int           `json:"max_resumes"`
	Restore         string        `json:"restore"`
	Wall            time.Duration `json:"wall,omitempty"`
	Idle            time.Duration `json:"idle,omitempty"`
	QuestionTimeout time.Duration `json:"question_timeout,omitempty"`
	Revokers        []string      `json:"revokers,omitempty"` // refs of revoker instances
	Hold            time.Duration `json:"hold,omitempty"`     // approval_hold
	MaxCostMicro    int64         `json:"max_cost_micro,omitempty"`
	MaxTokens       int64         `json:"max_tokens,omitempty"`
	Gateways        []string      `json:"gateways,omitempty"` // names
	Allow           []string      `json:"allow,omitempty"`    // of network mode gateway
	// Save: the cell is written to disk when the host is stopped, where the driver
	// can (checkpoint = "on-suspend").
	Save bool `json:"save,omitempty"`
}

func specOf(cfg config.Agent) spec {
	return spec{
		Cell: cells.Spec{Agent: cfg.Name, Isolation: cfg.Isolation,
			CPU: cfg.Resources.CPU, MemoryBytes: cfg.Resources.Memory, Pids: cfg.Resources.Pids, DiskBytes: cfg.Resources.Disk,
			Network: cfg.Network.Mode, Workspace: cells.Workspace{Source: cfg.Workspace.Source, Mode: cfg.Workspace.Mode}},
		Runtime: cfg.Runtime, MaxResumes: cfg.MaxResumes, Restore: cfg.Restore,
		Wall: cfg.Budget.Wall, Idle: cfg.Budget.Idle, QuestionTimeout: cfg.ApprovalTimeout,
		Revokers: cfg.Revokers, Hold: cfg.ApprovalHold, MaxCostMicro: cfg.Budget.MaxCostMicroUSD, MaxTokens: cfg.Budget.MaxTokens,
		Gateways: gatewayNames(cfg.Gateways), Allow: cfg.Network.Allow,
		Save: cfg.Checkpoint == "on-suspend",
	}
}

func resolveSpec(cfg config.Agent) (json.RawMessage, error) { return json.Marshal(specOf(cfg)) }

// frozen reads the spec that a mission was taken in with.
func frozen(raw json.RawMessage) (spec, error) {
	var s spec
	err := json.Unmarshal(raw, &s)
	return s, err
}

// runtimeName is the plugin's name in a ref like "runtime.command.shell"; the
// wire's agent_runtime (rulings 6).
func runtimeName(ref string) string {
	parts := strings.Split(ref, ".")
	if len(parts) != 3 {
		return ref
	}
	return parts[1]
}

// platform is this machine in the contract's words.
func platform() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "/" + arch
}
