package journal

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// DecisionType is the event name of an exported decision. The AIOS draft has no
// canonical event for a decision, so it is an extension in our own name.
const DecisionType = Extension + "decision"

// Attribution says whose decisions are exported, for the evidence link of each.
type Attribution struct {
	Source        string // as the reader knows the producer
	SourceVersion string
	// AgentID is the registered deployment. Empty: the name of the task's agent
	// block, or the task's id where it has none.
	AgentID string
	// RunID is the run that owns the task, if the deployment says so. It is never
	// taken from the task id: a correlation is no attribution.
	RunID string
}

// EvidenceLink attributes an artifact (contract_version 1.0).
type EvidenceLink struct {
	ContractVersion string    `json:"contract_version"`
	AgentID         string    `json:"agent_id"`
	Source          string    `json:"source"`
	SourceVersion   string    `json:"source_version"`
	ArtifactType    string    `json:"artifact_type"` // decision
	ArtifactRef     string    `json:"artifact_ref"`
	ObservedAt      time.Time `json:"observed_at"`
	RunID           string    `json:"run_id,omitempty"`
}

// DecisionLine is one line of an export of decisions.
type DecisionLine struct {
	Type           string          `json:"type"`
	TaskID         string          `json:"task_id"`
	Sequence       uint64          `json:"sequence"`
	EventID        string          `json:"event_id"`
	Timestamp      time.Time       `json:"timestamp"`
	Digest         Digest          `json:"digest"` // of the event in the chain
	DecisionID     string          `json:"decision_id"`
	ProposalID     string          `json:"proposal_id"`
	ToolName       string          `json:"tool_name"`
	Epoch          uint64          `json:"epoch"`
	Fingerprint    string          `json:"fingerprint"`
	PolicyHash     string          `json:"policy_hash"`
	ParentDecision string          `json:"parent_decision_id,omitempty"`
	ParentPlanStep *int            `json:"parent_plan_step,omitempty"`
	Findings       json.RawMessage `json:"findings,omitempty"`
	Decision       SixFields       `json:"decision"`
	EvidenceLink   EvidenceLink    `json:"evidence_link"`
}

// SixFields are what readers of decisions read, with the values as they stand in
// the journal: a risk that was not rated is null and stays null.
type SixFields struct {
	Status             json.RawMessage `json:"status"`
	Risk               json.RawMessage `json:"risk"`
	Reason             json.RawMessage `json:"reason"`
	DecisionPoint      json.RawMessage `json:"decision_point"`
	EscalationRequired json.RawMessage `json:"escalation_required"`
	CausalLink         json.RawMessage `json:"causal_link"`
}

// WriteDecisions reads an export of a journal and writes one line for each
// decision in it. The chain is verified on the way; with an error, what was
// written is not to be used. It gives the head of what was read.
func WriteDecisions(w io.Writer, r io.Reader, by Attribution) (Head, error) {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	head, err := walk(r, func(ev *Event) error {
		switch {
		case ev.Kind == TaskOpened && by.AgentID == "":
			by.AgentID = agentOf(ev)
		case ev.Kind == Decision:
			line, err := decisionLine(ev, by)
			if err != nil {
				return err
			}
			return enc.Encode(line)
		}
		return nil
	})
	if err != nil {
		return head, err
	}
	return head, out.Flush()
}

func agentOf(ev *Event) string {
	var opened struct {
		Agent string `json:"agent"`
	}
	if err := json.Unmarshal([]byte(ev.Payload), &opened); err != nil || opened.Agent == "" {
		return ev.TaskID
	}
	return opened.Agent
}

func decisionLine(ev *Event, by Attribution) (*DecisionLine, error) {
	line := &DecisionLine{}
	var fields struct {
		*DecisionLine
		Decision map[string]json.RawMessage `json:"decision"`
	}
	fields.DecisionLine = line
	if err := json.Unmarshal([]byte(ev.Payload), &fields); err != nil {
		return nil, err
	}
	line.Findings = fields.Decision["findings"]
	for name, to := range map[string]*json.RawMessage{
		"status": &line.Decision.Status, "risk": &line.Decision.Risk, "reason": &line.Decision.Reason,
		"decision_point": &line.Decision.DecisionPoint, "escalation_required": &line.Decision.EscalationRequired,
		"causal_link": &line.Decision.CausalLink,
	} {
		v, ok := fields.Decision[name]
		if !ok {
			return nil, fmt.Errorf("it has no %s", name)
		}
		*to = v
	}
	line.Type, line.TaskID, line.Sequence, line.EventID = DecisionType, ev.TaskID, ev.Sequence, ev.EventID
	line.Timestamp, line.Digest = ev.Timestamp, ev.Digest
	line.EvidenceLink = EvidenceLink{
		ContractVersion: "1.0", AgentID: by.AgentID, Source: by.Source, SourceVersion: by.SourceVersion, ArtifactType: "decision",
		ArtifactRef: "urn:airlock:event:" + ev.EventID, ObservedAt: ev.Timestamp, RunID: by.RunID,
	}
	return line, nil
}
