package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// maxFindings of one answer.
const maxFindings = 64

// asked is what is posted.
type asked struct {
	TaskID     string          `json:"task_id"`
	ProposalID string          `json:"proposal_id"`
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args"`
	Agent      string          `json:"agent"`
	Objective  string          `json:"objective"`
	Intent     json.RawMessage `json:"intent"` // null: none
	Outcome    string          `json:"outcome"`
	Risk       string          `json:"risk"`
	Findings   []finding       `json:"findings"` // of the host's rules
	History    []past          `json:"history"`
}

type past struct {
	Tool   string `json:"tool"`
	Status string `json:"status"`
}

// finding is one of a question and of an answer.
type finding struct {
	Rule    string `json:"rule"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// question is the body for a request. Its errors hold no value of an argument.
func question(req *pluginv1.EvaluateRequest) ([]byte, error) {
	p := req.GetProposal()
	a := asked{
		TaskID: req.GetTaskId(), ProposalID: p.GetProposalId(), Tool: p.GetTool(), Args: p.GetArgs(), Agent: req.GetAgent(),
		Objective: req.GetObjective(), Intent: req.GetIntentJson(), Outcome: word(req.GetOutcome()), Risk: req.GetRisk(),
		Findings: []finding{}, History: []past{},
	}
	switch {
	case a.Tool == "":
		return nil, errors.New("there is no call in the request")
	case len(a.Args) == 0:
		a.Args = json.RawMessage("{}")
	case !json.Valid(a.Args):
		return nil, errors.New("the arguments are no JSON")
	}
	if len(a.Intent) == 0 {
		a.Intent = json.RawMessage("null")
	}
	for _, f := range req.GetFindings() {
		a.Findings = append(a.Findings, finding{f.GetRule(), word(f.GetOutcome()), f.GetReason()})
	}
	for _, h := range req.GetHistory() {
		a.History = append(a.History, past{h.GetTool(), h.GetStatus()})
	}
	body, err := json.Marshal(a)
	if err != nil {
		return nil, errors.New("the request cannot be written as JSON")
	}
	return body, nil
}

// opinion reads an answer strictly: {"findings":[{"rule","outcome","reason"}]}.
// An answer without "findings" is none; an empty list objects to nothing.
func opinion(text []byte) ([]*pluginv1.PolicyFinding, error) {
	var answer struct {
		Findings *[]finding `json:"findings"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&answer); err != nil {
		return nil, errors.New("it is not the JSON that was asked for")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after it")
	}
	switch {
	case answer.Findings == nil:
		return nil, errors.New("it has no findings; an empty list objects to nothing")
	case len(*answer.Findings) > maxFindings:
		return nil, fmt.Errorf("it has more than %d findings", maxFindings)
	}
	var out []*pluginv1.PolicyFinding
	for i, f := range *answer.Findings {
		outcome := pluginv1.Decision(pluginv1.Decision_value["DECISION_"+f.Outcome])
		switch {
		case f.Rule == "" || len(f.Rule) > 100 || strings.ContainsAny(f.Rule, "\r\n"):
			return nil, fmt.Errorf("finding %d has no name of a rule", i+1)
		case outcome == pluginv1.Decision_DECISION_UNSPECIFIED:
			return nil, fmt.Errorf("finding %d has an unknown outcome", i+1)
		case f.Reason == "":
			return nil, fmt.Errorf("finding %d has no reason", i+1)
		}
		out = append(out, &pluginv1.PolicyFinding{Rule: f.Rule, Outcome: outcome, Reason: f.Reason})
	}
	return out, nil
}

// word is ALLOW, WARN and so on.
func word(d pluginv1.Decision) string { return strings.TrimPrefix(d.String(), "DECISION_") }
