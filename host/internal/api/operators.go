package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/airlock-host/airlock/config"
)

// The roles.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
)

// minToken is how many characters an operator's token has at least (O3).
const minToken = 32

// Operator is one operator block. The actor in every record is its name.
type Operator struct {
	Name   string
	Role   string
	agents map[string]bool // nil: all
	// session says that it came in with a session of the Control Room.
	session bool
}

// MaySee says whether the operator may see missions of an agent.
func (o *Operator) MaySee(agent string) bool { return o.agents == nil || o.agents[agent] }

// MayWrite says whether the operator may change anything.
func (o *Operator) MayWrite() bool { return o.Role == RoleOperator }

// Restricted says that the operator sees some agents only; what concerns the
// whole host is not for it to change.
func (o *Operator) Restricted() bool { return o.agents != nil }

// Agents are the agents that a restricted operator may see, sorted.
func (o *Operator) Agents() []string {
	names := make([]string, 0, len(o.agents))
	for a := range o.agents {
		names = append(names, a)
	}
	slices.Sort(names)
	return names
}

// Operators is the table of who may come in. It never changes; a reload makes
// another one. An empty table lets nobody in.
type Operators struct {
	tokens []hashed
	uids   map[uint32]*Operator
}

// hashed is a token as it is kept.
type hashed struct {
	sum [sha256.Size]byte
	op  *Operator
}

// LoadOperators reads the tokens and makes the table. An operator whose token
// cannot be used cannot come in with one; the error names every such block, and
// the table holds the others all the same. getenv is os.Getenv.
func LoadOperators(blocks []config.Operator, getenv func(string) string) (*Operators, error) {
	t := &Operators{uids: map[uint32]*Operator{}}
	var errs []error
	for _, b := range blocks {
		op := &Operator{Name: b.Name, Role: b.Role}
		if b.Role != RoleViewer && b.Role != RoleOperator {
			errs = append(errs, fmt.Errorf("operator %q: role is %q, not %s or %s", b.Name, b.Role, RoleOperator, RoleViewer))
			continue
		}
		if len(b.Agents) > 0 {
			op.agents = map[string]bool{}
			for _, a := range b.Agents {
				op.agents[a] = true
			}
		}
		for _, uid := range b.UIDs {
			if other := t.uids[uid]; other != nil {
				errs = append(errs, fmt.Errorf("operator %q: uid %d is operator %q already", b.Name, uid, other.Name))
				continue
			}
			t.uids[uid] = op
		}
		token, err := readToken(b, getenv)
		if err == nil && token != "" {
			err = t.add(token, op)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("operator %q: %w", b.Name, err))
		}
	}
	return t, errors.Join(errs...)
}

// add puts a token into the table.
func (t *Operators) add(token string, op *Operator) error {
	if len(token) < minToken {
		return fmt.Errorf("the token has %d characters, at least %d are needed", len(token), minToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token has blanks, control or non-ASCII characters in it")
	}
	if other := t.find(token); other != nil {
		return fmt.Errorf("the token is that of operator %q too", other.Name)
	}
	t.tokens = append(t.tokens, hashed{sha256.Sum256([]byte(token)), op})
	return nil
}

// find looks a token up in a time that does not depend on it.
func (t *Operators) find(token string) *Operator {
	if t == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	var op *Operator
	for i := range t.tokens {
		if subtle.ConstantTimeCompare(sum[:], t.tokens[i].sum[:]) == 1 {
			op = t.tokens[i].op
		}
	}
	return op
}

// byName finds an operator, to say whether who came in earlier still may.
func (t *Operators) byName(name string) *Operator {
	if t == nil {
		return nil
	}
	for i := range t.tokens {
		if t.tokens[i].op.Name == name {
			return t.tokens[i].op
		}
	}
	for _, op := range t.uids {
		if op.Name == name {
			return op
		}
	}
	return nil
}

// byUID finds who is on the other end of the operator socket.
func (t *Operators) byUID(uid uint32) *Operator {
	if t == nil {
		return nil
	}
	return t.uids[uid]
}

// UIDs are those that may use the operator socket without a token, sorted.
func (t *Operators) UIDs() []uint32 {
	uids := make([]uint32, 0, len(t.uids))
	for uid := range t.uids {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// readToken reads a block's token; empty where the block names none.
func readToken(b config.Operator, getenv func(string) string) (string, error) {
	switch {
	case b.TokenFile != "":
		info, err := os.Stat(b.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
			return "", fmt.Errorf("token file %s has mode %v: it must be a file that only its owner can read (chmod 600)", b.TokenFile, mode)
		}
		if info.Size() > 4096 {
			return "", fmt.Errorf("token file %s has %d bytes, that is no token", b.TokenFile, info.Size())
		}
		text, err := os.ReadFile(b.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token := strings.TrimRight(string(text), "\r\n")
		if token == "" {
			return "", fmt.Errorf("token file %s is empty", b.TokenFile)
		}
		return token, nil
	case b.TokenEnv != "":
		token := getenv(b.TokenEnv)
		if token == "" {
			return "", fmt.Errorf("environment variable %s with the token is not set", b.TokenEnv)
		}
		return token, nil
	case len(b.UIDs) == 0:
		return "", errors.New("it has neither a token nor uids, nobody can be it")
	default:
		return "", nil
	}
}
