package executor

import (
	"encoding/json"
	"net/http"
)

// problem is an RFC 9457 body with an `error` string beside it, which older
// readers look for (contract, row 24).
type problem struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail,omitempty"`
	Error   string `json:"error"`
	Field   string `json:"field,omitempty"`
	AgentID string `json:"agent_id,omitempty"`
}

const problemBase = "https://aiwg.io/problems/"

func (p problem) write(w http.ResponseWriter) {
	p.Type = problemBase + p.Type
	p.Title = http.StatusText(p.Status)
	p.Detail = cut(p.Detail, 500)
	p.Error = p.Detail
	if p.Error == "" {
		p.Error = p.Title
	}
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	switch p.Status {
	case http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		// The body was not read and is not waited for.
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
