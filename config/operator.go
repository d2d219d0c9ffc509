package config

import (
	"errors"
	"fmt"
	"regexp"
)

// MinTokenLength is how many characters an operator's token has at least.
const MinTokenLength = 32

// ErrNoToken says that an operator has uids only and cannot use a token.
var ErrNoToken = errors.New("operator has no token")

// tokenForm is what can follow "Bearer " in a header (RFC 6750).
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Token reads the operator's bearer token: 32 characters or more, one newline
// at the end of the file left out. It is read anew at each call, so that a
// rotated token counts after a reload. env is the environment, nil where there
// is none. The error is ErrNoToken for an operator without one; any other error
// means that the operator must be locked out, never let in without a token.
func (o Operator) Token(env func(string) (string, bool)) (string, error) {
	var token, from string
	switch {
	case o.TokenFile != "":
		read := o.readToken
		if read == nil {
			read = readTokenFile
		}
		b, err := read(o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token file %s of operator %q: %w", o.TokenFile, o.Name, pathless(err))
		}
		token, from = trimNewline(string(b)), "token file "+o.TokenFile
	case o.TokenEnv != "":
		var ok bool
		if env != nil {
			token, ok = env(o.TokenEnv)
		}
		if !ok {
			return "", fmt.Errorf("environment variable %s with the token of operator %q is not set", o.TokenEnv, o.Name)
		}
		from = "environment variable " + o.TokenEnv
	default:
		return "", fmt.Errorf("%w: %q", ErrNoToken, o.Name)
	}
	switch {
	case len(token) < MinTokenLength:
		return "", fmt.Errorf("%s of operator %q holds %d characters: a token has at least %d; make one with: openssl rand -hex 32", from, o.Name, len(token), MinTokenLength)
	case len(token) > 4096:
		return "", fmt.Errorf("%s of operator %q holds more than 4096 characters", from, o.Name)
	case !tokenForm.MatchString(token):
		return "", fmt.Errorf("%s of operator %q holds characters that a bearer token cannot have: use letters, digits and -._~+/ on one line", from, o.Name)
	}
	return token, nil
}
