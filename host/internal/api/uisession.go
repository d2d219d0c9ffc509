package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

const (
	// codeLife is how long a one-time code is good, sessionLife a session.
	codeLife    = time.Minute
	sessionLife = 12 * time.Hour
	// maxCodes and maxSessions bound what is kept; the oldest goes.
	maxCodes, maxSessions = 64, 256
)

// uiSessions are the sessions of the Control Room that were opened with a
// one-time code. They are in memory only: a restart of the host ends them. A
// session is good as long as its operator is in the table.
type uiSessions struct {
	now func() time.Time

	mu       sync.Mutex
	codes    map[[sha256.Size]byte]uiGrant
	sessions map[[sha256.Size]byte]uiGrant
}

// uiGrant is whose a code or a session is, and how long it is good.
type uiGrant struct {
	operator string
	until    time.Time
}

func newUISessions(now func() time.Time) *uiSessions {
	return &uiSessions{now: now, codes: map[[sha256.Size]byte]uiGrant{}, sessions: map[[sha256.Size]byte]uiGrant{}}
}

// give makes a secret for an operator and keeps its hash.
func (u *uiSessions) give(kept map[[sha256.Size]byte]uiGrant, most int, operator string, life time.Duration) (secret string, until time.Time) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	secret = hex.EncodeToString(b[:])
	now := u.now()
	until = now.Add(life)
	var oldest [sha256.Size]byte
	for sum, g := range kept {
		if !g.until.After(now) {
			delete(kept, sum)
		} else if o, ok := kept[oldest]; !ok || g.until.Before(o.until) {
			oldest = sum
		}
	}
	if len(kept) >= most {
		delete(kept, oldest)
	}
	kept[sha256.Sum256([]byte(secret))] = uiGrant{operator, until}
	return secret, until
}

// code makes a one-time code.
func (u *uiSessions) code(operator string) (code string, until time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.give(u.codes, maxCodes, operator, codeLife)
}

// open takes a code, once, and makes a session of it.
func (u *uiSessions) open(code string) (token, operator string, until time.Time, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := sha256.Sum256([]byte(code))
	g, ok := u.codes[sum]
	delete(u.codes, sum)
	if !ok || !g.until.After(u.now()) {
		return "", "", time.Time{}, false
	}
	token, until = u.give(u.sessions, maxSessions, g.operator, sessionLife)
	return token, g.operator, until, true
}

// who finds the operator of a session that is still good.
func (u *uiSessions) who(table *Operators, token string) *Operator {
	u.mu.Lock()
	g, ok := u.sessions[sha256.Sum256([]byte(token))]
	u.mu.Unlock()
	if !ok || !g.until.After(u.now()) {
		return nil
	}
	op := table.byName(g.operator)
	if op == nil {
		return nil
	}
	in := *op
	in.session = true
	return &in
}

// end ends a session.
func (u *uiSessions) end(token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.sessions, sha256.Sum256([]byte(token)))
}

// whoAmI is the answer of GET /api/v1/whoami.
type whoAmI struct {
	Operator string   `json:"operator"`
	Role     string   `json:"role"`
	Agents   []string `json:"agents"` // that it may see; null: all
	Session  bool     `json:"session"`
	Version  string   `json:"version"`
}

func (s *Server) whoami(w http.ResponseWriter, _ *http.Request, op *Operator) error {
	me := whoAmI{Operator: op.Name, Role: op.Role, Session: op.session, Version: s.opts.Version}
	if op.Restricted() {
		me.Agents = op.Agents()
	}
	return writeJSON(w, http.StatusOK, me)
}

// makeCode is POST /api/v1/ui/codes: a code that opens the Control Room as the
// operator who asks, once and soon. It is in the URL's fragment, which no server
// and no log sees.
func (s *Server) makeCode(w http.ResponseWriter, r *http.Request, op *Operator) error {
	if err := s.readBody(w, r, true); err != nil {
		return err
	}
	if op.session {
		return refuse(http.StatusForbidden, "a session of the Control Room cannot make another one; run airlock ui")
	}
	if s.opts.UI == nil {
		return refuse(http.StatusNotFound, "this host serves no Control Room")
	}
	code, until := s.ui.code(op.Name)
	s.log.Info("one-time code for the Control Room made", "actor", op.Name)
	return writeJSON(w, http.StatusCreated, map[string]any{
		"code": code, "url": s.address(r) + "/#code=" + code, "expires_at": until.UTC()})
}

// openSession is POST /api/v1/ui/session {"code"}: the code for a session's
// token, which is a bearer token like any other until it expires.
func (s *Server) openSession(w http.ResponseWriter, r *http.Request, _ *Operator) error {
	var code string
	if err := s.readBody(w, r, false, member{"code", &code, true}); err != nil {
		return err
	}
	token, operator, until, ok := s.ui.open(code)
	if !ok {
		return s.denied(r, "the code is not good: it was used or is older than a minute; run airlock ui again")
	}
	s.log.Info("Control Room opened", "actor", operator)
	return writeJSON(w, http.StatusCreated, map[string]any{"token": token, "operator": operator, "expires_at": until.UTC()})
}

// closeSession is DELETE /api/v1/ui/session: the session that asks is over.
func (s *Server) closeSession(w http.ResponseWriter, r *http.Request, op *Operator) error {
	if token, _ := bearer(r); op.session {
		s.ui.end(token)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
