package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

func recordChecks() []revokerCheck {
	return []revokerCheck{
		{"evidence-record", "", evidence},
		{"no-secret-in-logs", "", noSecrets}, // last: it looks back on all of them
	}
}

// evidence: an acknowledgement says what happened, and its digest is that of
// the issuer's answer.
func evidence(ctx context.Context, k *revokerKit) error {
	task, stop := k.task(), newID()
	g, err := k.grant(ctx, task, newID())
	if err != nil {
		return err
	}
	r, err := k.cut(ctx, task, stop, g.GetGrantId())
	if err != nil {
		return err
	}
	digest := r.GetEvidenceDigest()
	switch {
	case r.GetDetail() == "":
		return errors.New("an acknowledgement without a word of detail")
	case len(digest) == 0 && k.opts.Issuer.Answer == nil:
		return notDeclared("the revoker gives no evidence")
	case len(digest) != sha256.Size || bytes.Equal(digest, make([]byte, sha256.Size)):
		return fmt.Errorf("the evidence %x is no SHA-256", digest)
	}
	if k.opts.Issuer.Answer == nil {
		return nil
	}
	answer := k.opts.Issuer.Answer(stop)
	if want := sha256.Sum256(answer); !bytes.Equal(want[:], digest) {
		return fmt.Errorf("the evidence is %x; the digest of the issuer's answer is %x", digest, want)
	}
	return nil
}

// minSecret is the length below which finding a value proves nothing.
const minSecret = 8

// noSecrets looks for every credential and every configured secret in all that
// the plugin has logged and answered, plain and in the usual disguises.
func noSecrets(_ context.Context, k *revokerKit) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	texts := map[string]string{"what it answered": strings.Join(k.said, "\n")}
	if k.opts.Logs != nil {
		texts["what it logged"] = k.opts.Logs()
	}
	secrets := append(k.secrets, k.opts.Secrets...)
	looked := 0
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		looked++
		for where, text := range texts {
			for _, form := range disguises(s) {
				if strings.Contains(text, form) {
					return fmt.Errorf("a secret that begins with %.3q is in %s", s, where)
				}
			}
		}
	}
	if looked == 0 {
		return notDeclared("there was no secret to look for")
	}
	return nil
}

func disguises(s string) []string {
	return []string{
		s, url.QueryEscape(s), hex.EncodeToString([]byte(s)),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
	}
}
