// Package evidence is the bundle of a task that somebody else can check: its
// whole journal, what of it is evidence told once more in the open (policy,
// plugins, approvals, receipts, the end), and its head, signed by the host. It
// imports journal and the records of heads, nothing else, and no network code.
//
// The one idea: nothing in a bundle is believed. Events are chained, everything
// told once more must follow from them word for word, the head's signature
// covers the chain, and the last line is a digest over all bytes before it.
//
// A bundle is text, one JSON object per line, and never an archive: there are no
// paths to leave a directory by and nothing that unpacks to more than it is. It
// is read line by line, in memory that does not grow with it.
package evidence

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

const (
	version = 1
	// maxLine bounds a line of a bundle; no event that a host writes comes near.
	maxLine = 64 << 20
	// maxTold bounds the lines that tell events once more.
	maxTold = 1 << 20
)

// opening is a bundle's first line.
type opening struct {
	Version     int            `json:"airlock_bundle"`
	TaskID      string         `json:"task_id"`
	JournalUUID string         `json:"journal_uuid"`
	Events      uint64         `json:"events"`
	Digest      journal.Digest `json:"digest"` // of the last event
}

// sealed is the line behind the evidence: the head of this very chain.
type sealed struct {
	Head      record.Record `json:"signed_head"`
	PublicKey string        `json:"public_key"` // PEM; whose it is, the reader must know
}

// closing is the last line: SHA-256, in hex, of all bytes before it.
type closing struct {
	SHA256 string `json:"sha256"`
}

// Prefix is how every bundle begins.
const Prefix = `{"airlock_bundle":`

// DamageError says what is wrong with a bundle, and where.
type DamageError struct {
	Line   int   // from 1
	Offset int64 // of that line's first byte
	Err    error // a *journal.ChainError where it is the chain
}

// Error implements error.
func (e *DamageError) Error() string {
	var ce *journal.ChainError
	if errors.As(e.Err, &ce) {
		return e.Err.Error() // it names the place
	}
	return fmt.Sprintf("line %d (offset %d): %v", e.Line, e.Offset, e.Err)
}

// Unwrap gives the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// line is how a value is written: one way only.
func line(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}
