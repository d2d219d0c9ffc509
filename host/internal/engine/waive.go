package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/airlock-host/airlock/host/internal/governance"
	"github.com/airlock-host/airlock/host/internal/mission"
)

// Waive takes note that an operator does without an issuer's acknowledgement,
// say because no revoker of its name is configured. It is in the journal with
// the operator's name; receipts go on to say that access was not acknowledged
// everywhere. Errors: ErrNotFound, ErrInvalid, *governance.Refused.
func (e *Engine) Waive(ctx context.Context, taskID, issuer, explanation, actor string) error {
	a, err := e.living(ctx, taskID)
	if err != nil {
		return err
	}
	if explanation == "" {
		return fmt.Errorf("explanation must say why the issuer's access needs no revocation: %w", ErrInvalid)
	}
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		return mission.Govern(m.Task.Waive(issuer, explanation, actor))
	}, nil)
	switch {
	case errors.Is(err, governance.ErrUnknown):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case err != nil:
		return err
	}
	a.unwritten.Delete(issuer)
	if k, ok := a.asking.Load(issuer); ok {
		k.(*asker).again(func() {}) // it sees that it is over
	}
	e.log.Warn("an issuer's access is waived by an operator; nothing was revoked there", "task", taskID, "issuer", issuer, "actor", actor)
	return nil
}

// waived says whether an operator has taken an issuer's access on.
func (a *actor) waived(issuer string) bool {
	m := a.settled()
	return m.Task.Revocation != nil && m.Task.Revocation.Issuers[issuer].Result == governance.Waived
}

// NewToken gives a harness task another token; the one before is void at once.
// Scopes that are empty stay as they were. Errors: ErrNotFound, ErrInvalid,
// ErrConflict for a task that is none of a harness, *governance.Refused.
func (e *Engine) NewToken(ctx context.Context, taskID string, scopes []string, actor string) (string, error) {
	a, err := e.task(ctx, taskID)
	if err != nil {
		return "", err
	}
	if !a.state().Harness {
		return "", fmt.Errorf("task %q is a mission's: it has no token: %w", taskID, ErrConflict)
	}
	if err := knownScopes(scopes); err != nil {
		return "", err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	token := hex.EncodeToString(secret[:])
	void := ""
	err = a.commit(func(m *mission.Mission) ([]mission.Fact, error) {
		had, err := harnessToken(m)
		if err != nil {
			return nil, err
		}
		void = had.TokenHash
		if len(scopes) > 0 {
			had.Scopes = scopes
		}
		return []mission.Fact{governance.Granted{V: 1, Issuer: "airlock", Token: &governance.TokenIssued{SHA256: tokenHash(token), Scopes: had.Scopes, Actor: actor}}}, nil
	}, nil)
	if err != nil {
		return "", err
	}
	m := a.settled()
	e.rememberToken(&m)
	e.tokens.Delete(void)
	e.log.Info("a task has a new token", "task", taskID, "actor", actor)
	return token, nil
}

func knownScopes(scopes []string) error {
	for _, s := range scopes {
		if !slices.Contains(Scopes(), s) {
			return fmt.Errorf("scopes: %q is none of %v: %w", s, Scopes(), ErrInvalid)
		}
	}
	return nil
}
