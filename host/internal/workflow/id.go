package workflow

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// Prefixes of ids. wc_agent_task_ begins wc_agent_task_attempt_ and
// wc_agent_task_fence_ too, so an id is checked by its exact length.
const (
	prefixGoal       = "wc_goal_"
	prefixTask       = "wc_agent_task_"
	prefixAttempt    = "wc_agent_task_attempt_"
	prefixAgent      = "wc_dagent_"
	prefixEndpoint   = "wc_endpoint_"
	prefixWake       = "wc_wake_"
	prefixSession    = "wc_sess_"
	prefixMessage    = "wc_msg_"
	prefixInvocation = "wc_inv_"

	prefixFence      = "wc_agent_task_fence_"
	prefixConsume    = "wc_wake_consume_"
	prefixAssignment = "wsa2_"
)

const (
	idChars    = 16 // 12 random bytes
	proofChars = 22 // 16 bytes
	idTries    = 16
)

// isID says whether s is an id of the kind with the prefix.
func isID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && len(rest) == idChars && isBase64(rest)
}

// isProof says whether s is a proof of the kind; 16 bytes leave four bits unused
// in the last character, which must be zero.
func isProof(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && len(rest) == proofChars && isBase64(rest) && strings.IndexByte("AQgw", rest[proofChars-1]) >= 0
}

func isBase64(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// isStepID is the form of ids of steps.
func isStepID(s string) bool { return len(s) >= 1 && len(s) <= 32 && isBase64(s) }

// newID makes an id that no row of the table has.
func (k *Keeper) newID(r Reader, t Table, prefix string) (string, error) {
	for range idTries {
		var b [12]byte
		if _, err := io.ReadFull(k.opts.Rand, b[:]); err != nil {
			return "", err
		}
		id := prefix + base64.RawURLEncoding.EncodeToString(b[:])
		row, err := r.Get(t, id)
		if err != nil {
			return "", err
		}
		if row == nil {
			return id, nil
		}
	}
	return "", refuse("identity_allocation_exhausted", RetrySame, "no free id was found")
}

// proof derives a secret that can be made again and is stored as a hash only.
func (k *Keeper) proof(prefix string, parts ...string) string {
	mac := hmac.New(sha256.New, k.opts.Key)
	mac.Write([]byte("airlock.workflow.proof.v1\x00" + prefix))
	for _, p := range parts {
		mac.Write([]byte("\x00" + p))
	}
	return prefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

func proofHash(proof string) []byte {
	sum := sha256.Sum256([]byte("airlock.workflow.proof-hash.v1\x00" + proof))
	return sum[:]
}

func proofEqual(proof string, hash []byte) bool {
	return subtle.ConstantTimeCompare(proofHash(proof), hash) == 1
}

// keyHash is how an idempotency key is stored.
func keyHash(operation, key string) [32]byte {
	return sha256.Sum256([]byte("airlock.workflow.key.v1\x00" + operation + "\x00" + key))
}

// requestHash covers a request after trimming, with its defaults filled in.
func requestHash(operation string, normalized any) [32]byte {
	text, err := json.Marshal(normalized)
	if err != nil {
		panic(err) // requests are strings, numbers and flags
	}
	return sha256.Sum256(append([]byte("airlock.workflow.request.v1\x00"+operation+"\x00"), text...))
}

// chars counts Unicode characters, the unit of titles, steps, answers and keys.
func chars(s string) int { return utf8.RuneCountInString(s) }

// trimmed is s without the space around it.
func trimmed(s string) string { return strings.TrimSpace(s) }

func trimmedPtr(s *string) *string {
	if s == nil {
		return nil
	}
	t := strings.TrimSpace(*s)
	return &t
}

// key trims an idempotency key and checks its length.
func key(s, kind string) (string, error) {
	s = trimmed(s)
	if n := chars(s); n < 1 || n > 128 {
		return "", refuse(kind, FixInput, "the key must have 1 to 128 characters")
	}
	return s, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
