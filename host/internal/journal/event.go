// Package journal is the hash-chained event log of a task: the event, the
// chain, the head, and how they are verified and exported. It imports the
// standard library only. The one idea: what is hashed is the stored payload
// text itself, never a value that was marshalled again.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// tag is the versioned domain string of every digest.
const tag = "airlock.journal.v1"

// TimeLayout is how timestamps are written and hashed: RFC 3339, UTC, three
// decimals.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// String gives the digest in lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives the digest in lower-case hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 64 hex digits in lower case, as they are written.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest has %d characters, want %d", len(text), hex.EncodedLen(len(d)))
	}
	if bytes.ContainsAny(text, "ABCDEF") {
		return errors.New("digest is not in lower case")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Event is one event of a task's chain (seed 003: eight fields). It is a value;
// nothing in it may be changed once it is chained.
type Event struct {
	Sequence     uint64    // from 1, without gaps
	EventID      string    // UUID
	TaskID       string    // the task, which is the mission
	Timestamp    time.Time // UTC, whole milliseconds; order is by Sequence only
	Kind         Kind
	Payload      string // a JSON object, exactly as hashed; carries "v"
	PreviousHash Digest
	Digest       Digest
}

// Head is the end of a chain.
type Head struct {
	TaskID      string `json:"task_id"`
	JournalUUID string `json:"journal_uuid"`
	Sequence    uint64 `json:"sequence"` // 0: no event yet
	Digest      Digest `json:"digest"`   // of the last event; the genesis digest when there is none
}

// Genesis is the head of an empty chain. Its digest covers the task and the
// journal's own id, so that a chain cannot be re-labelled to another task.
func Genesis(taskID, journalUUID string) Head {
	b := make([]byte, 0, 160)
	b = put(b, tag)
	b = put(b, taskID)
	b = put(b, journalUUID)
	return Head{TaskID: taskID, JournalUUID: journalUUID, Digest: sha256.Sum256(b)}
}

// Next chains one event on the head and gives it with the new head.
func (h Head) Next(eventID string, at time.Time, kind Kind, payload string) (Event, Head) {
	ev := Event{
		Sequence:     h.Sequence + 1,
		EventID:      eventID,
		TaskID:       h.TaskID,
		Timestamp:    at.UTC().Truncate(time.Millisecond),
		Kind:         kind,
		Payload:      payload,
		PreviousHash: h.Digest,
	}
	ev.Digest = ev.Sum()
	h.Sequence, h.Digest = ev.Sequence, ev.Digest
	return ev, h
}

// Sum computes the event's digest (governance J21): SHA-256 over the tag, the
// sequence as 8 bytes, the length-prefixed fields and the previous digest.
func (e Event) Sum() Digest {
	var d Digest
	d, _ = e.sum(make([]byte, 0, 512))
	return d
}

// sum computes the digest in a buffer that it gives back, for those who sum
// many events.
func (e *Event) sum(b []byte) (Digest, []byte) {
	b = put(b[:0], tag)
	b = binary.BigEndian.AppendUint64(b, e.Sequence)
	b = put(b, e.TaskID)
	b = put(b, e.EventID)
	b = binary.BigEndian.AppendUint64(b, uint64(len(TimeLayout)))
	b = appendTime(b, e.Timestamp)
	b = put(b, string(e.Kind))
	b = put(b, e.Payload)
	b = append(b, e.PreviousHash[:]...)
	return sha256.Sum256(b), b
}

// put appends a length-prefixed string.
func put(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}

// appendTime appends t as TimeLayout has it, without the layout machinery.
func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, TimeLayout)
}
