// Package record is one signed record of heads: how it is signed, written, read
// and verified. It imports journal and nothing else, not even the network code
// that X.509 brings along, so that a verifier of evidence stays small.
//
// The one idea: what is signed is every field, length-prefixed, so that no two
// records have the same message.
package record

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/airlock-host/airlock/host/internal/journal"
)

// tag is the versioned domain string of every signature.
const tag = "airlock.heads.v1"

// Record is one line of the file: one signature over the heads of one or more
// commits.
type Record struct {
	V     int               `json:"v"` // 1
	TS    string            `json:"ts"`
	KeyID string            `json:"key_id"`
	Heads []journal.NewHead `json:"heads"`
	Sig   []byte            `json:"sig"` // Ed25519
}

// Sign makes a record.
func Sign(private ed25519.PrivateKey, at time.Time, hs []journal.NewHead) Record {
	public, _ := private.Public().(ed25519.PublicKey)
	r := Record{V: 1, TS: at.UTC().Format(journal.TimeLayout), KeyID: KeyID(public), Heads: hs}
	r.Sig = ed25519.Sign(private, r.Message())
	return r
}

// Message is what is signed.
func (r *Record) Message() []byte {
	b := make([]byte, 0, 64+160*len(r.Heads))
	text := func(s string) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(tag)
	text(r.TS)
	text(r.KeyID)
	b = binary.BigEndian.AppendUint64(b, uint64(len(r.Heads)))
	for i := range r.Heads {
		h := &r.Heads[i]
		text(h.TaskID)
		text(h.JournalUUID)
		b = binary.BigEndian.AppendUint64(b, h.Sequence)
		b = append(b, h.Digest[:]...)
		if h.Ended {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// Parse reads one line, without its newline.
func Parse(line []byte) (Record, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var r Record
	if err := dec.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("not a record of heads: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Record{}, errors.New("not a record of heads: text after it")
	}
	if r.V != 1 {
		return Record{}, fmt.Errorf("a record of version %d, this program knows version 1", r.V)
	}
	return r, nil
}

// OtherKeyError says that a record was signed by another key than the host's.
type OtherKeyError struct {
	KeyID string // of the record
	Host  string // of the host
}

// Error implements error.
func (e *OtherKeyError) Error() string {
	return fmt.Sprintf("signed by key %s, the host's is %s", e.KeyID, e.Host)
}

// Verify checks the signature. A record of another key is an *OtherKeyError.
func (r *Record) Verify(key Key) error {
	if r.KeyID != key.ID {
		return &OtherKeyError{KeyID: r.KeyID, Host: key.ID}
	}
	if !ed25519.Verify(key.Public, r.Message(), r.Sig) {
		return fmt.Errorf("the signature of key %s is not good", r.KeyID)
	}
	return nil
}

// Line gives the record as written, with the newline.
func (r *Record) Line() ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}
