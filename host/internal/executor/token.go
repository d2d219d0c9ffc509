package executor

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// handedFor is how long the token of the process before is good beside the
// newest one.
const handedFor = time.Minute

// authorized checks the bearer against the newest token, in constant time after
// a look at the length. Tokens are kept in memory only and swapped whole.
func (x *Executor) authorized(r *http.Request) bool {
	scheme, got, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got = strings.TrimSpace(got)
	return sameToken(x.token.Load(), got) || sameToken(x.handed.Load(), got)
}

func sameToken(want *string, got string) bool {
	if want == nil || len(got) == 0 || len(got) != len(*want) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(got), []byte(*want)) == 1
}

// redact takes tokens, old and new, and the endpoint's password out of a text.
func (x *Executor) redact(s string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, secret := range x.secrets {
		s = strings.ReplaceAll(s, secret, "[token]")
		s = strings.ReplaceAll(s, url.QueryEscape(secret), "[token]")
	}
	return s
}

// maxSecrets bounds how many replaced tokens are remembered for redacting.
const maxSecrets = 16

// remember makes a secret known to redact.
func (x *Executor) remember(secret string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, have := range x.secrets {
		if have == secret {
			return
		}
	}
	x.secrets = append(x.secrets, secret)
	if len(x.secrets) > maxSecrets {
		x.secrets = x.secrets[1:]
	}
}
