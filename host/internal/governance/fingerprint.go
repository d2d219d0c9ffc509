package governance

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Judged is what a decision was made about and under which rules; its
// fingerprint binds an approval and a dispatch to exactly that (governance A7).
type Judged struct {
	TaskID     string
	Epoch      uint64
	ProposalID string
	Tool       string
	Provenance string
	Args       []byte // a JSON object; the order of its members does not matter
	Intent     string // digest of the envelope; empty: none
	Rules      string // digest of the whole rule set
	Budget     string // the limits as text
	Mode       string
	CellID     string
}

// Fingerprint is a SHA-256 over the length-prefixed parts, in hex.
func (j Judged) Fingerprint() string {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	part([]byte("airlock.fingerprint.v1"))
	part([]byte(j.TaskID))
	part(fmt.Append(nil, j.Epoch))
	for _, s := range []string{j.ProposalID, j.Tool, j.Provenance} {
		part([]byte(s))
	}
	part(ordered(j.Args))
	for _, s := range []string{j.Intent, j.Rules, j.Budget, j.Mode, j.CellID} {
		part([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ordered writes a JSON text with the members of objects in order. Numbers keep
// their text; strings keep their characters, however they were escaped.
func ordered(raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw // not JSON: it is compared as it is
	}
	text, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return text
}

// Digest is the SHA-256 of some bytes in hex.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
