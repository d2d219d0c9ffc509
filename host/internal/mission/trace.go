package mission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
)

// TraceContext names a mission's trace: the ids of W3C Trace Context, in hex.
type TraceContext struct {
	TraceID string // 32 digits
	SpanID  string // 16 digits: the mission's own span
	Parent  string // 16 digits: whoever dispatched it; empty: nobody said
}

var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)

// Trace is the mission's trace. It follows from what was journalled when the
// mission was taken in, so that it is the same after a restart and nothing has
// to be kept: the trace of metadata.traceparent where the dispatch has one, else
// one of its own.
func Trace(journalUUID string, metadata json.RawMessage) TraceContext {
	t := TraceContext{TraceID: strings.ReplaceAll(strings.ToLower(journalUUID), "-", ""), SpanID: SpanID(journalUUID)}
	var meta struct {
		Parent string `json:"traceparent"`
	}
	if len(metadata) > 0 && json.Unmarshal(metadata, &meta) == nil {
		m := traceparent.FindStringSubmatch(meta.Parent)
		if m != nil && strings.Trim(m[1], "0") != "" && strings.Trim(m[2], "0") != "" {
			t.TraceID, t.Parent = m[1], m[2]
		}
	}
	return t
}

// SpanID is a span's id that follows from a name.
func SpanID(name string) string {
	sum := sha256.Sum256([]byte("airlock.span.v1\x00" + name))
	return hex.EncodeToString(sum[:8])
}

// Header is the trace as the value of a traceparent header, for whoever goes on
// with it.
func (t TraceContext) Header() string { return "00-" + t.TraceID + "-" + t.SpanID + "-01" }
