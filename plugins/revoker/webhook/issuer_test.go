package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
	"github.com/airlock-host/airlock/sdk/conformance"
)

const secret = "the secret of the issuer and the host"

// issuer is an issuer over HTTP that checks what it gets, and can be brought
// into trouble.
type issuer struct {
	t       *testing.T
	address string
	server  *http.Server

	mu      sync.Mutex
	tokens  map[string]string // by grant id
	answers map[string]string // by stop id
	status  int               // of every answer; 0: as it goes
	lie     bool
	stall   chan struct{}
	hold    string
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, address: "127.0.0.1:0", tokens: map[string]string{}, answers: map[string]string{}}
	if err := i.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.close)
	return i
}

// open listens, the second time where it did the first time.
func (i *issuer) open() error {
	l, err := net.Listen("tcp", i.address)
	if err != nil {
		return err
	}
	i.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /revoke", i.revoke)
	mux.HandleFunc("POST /verify", i.verify)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	i.server = server
	go func() { _ = server.Serve(l) }()
	return nil
}

func (i *issuer) close() { _ = i.server.Close() }

// read checks the signature as an issuer should.
func (i *issuer) read(r *http.Request) []byte {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil // the caller has gone
	}
	t, v1, ok := strings.Cut(r.Header.Get("Airlock-Signature"), ",v1=")
	t, isTime := strings.CutPrefix(t, "t=")
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", t, body)
	if got, err := hex.DecodeString(v1); !ok || !isTime || err != nil || !hmac.Equal(got, mac.Sum(nil)) {
		i.t.Errorf("the signature %q does not fit", r.Header.Get("Airlock-Signature"))
	}
	return body
}

// trouble answers in the place of the issuer when there is one.
func (i *issuer) trouble(w http.ResponseWriter, r *http.Request) bool {
	i.mu.Lock()
	stall, status := i.stall, i.status
	i.mu.Unlock()
	if stall != nil {
		select {
		case <-stall:
		case <-r.Context().Done():
		}
		return true
	}
	if status != 0 {
		http.Error(w, `{"revoked": true}`, status)
	}
	return status != 0
}

func (i *issuer) revoke(w http.ResponseWriter, r *http.Request) {
	body := i.read(r)
	if i.trouble(w, r) {
		return
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	var req revocation
	if err := d.Decode(&req); err != nil || req.Grants == nil || req.Sessions == nil || req.Delegations == nil {
		i.t.Errorf("the body %s is none: %v", body, err)
	}
	if r.Header.Get("Idempotency-Key") != headerSafe(req.StopID) {
		i.t.Errorf("the key is %q for the stop %q", r.Header.Get("Idempotency-Key"), req.StopID)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, g := range req.Grants {
		if g != i.hold && !i.lie {
			delete(i.tokens, g)
		}
	}
	answer := fmt.Sprintf(`{"revoked": %t, "of": %q}`, !slices.Contains(req.Grants, i.hold), req.StopID)
	i.answers[req.StopID] = answer
	_, _ = io.WriteString(w, answer)
}

func (i *issuer) verify(w http.ResponseWriter, r *http.Request) {
	body := i.read(r)
	if i.trouble(w, r) {
		return
	}
	var req verification
	if err := json.Unmarshal(body, &req); err != nil {
		i.t.Errorf("the body %s is none: %v", body, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	known := slices.ContainsFunc(req.Grants, func(g string) bool { return i.tokens[g] != "" })
	fmt.Fprintf(w, `{"accepted": %t}`, known)
}

func (i *issuer) set(begin, end func()) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		begin()
		return func() error { i.mu.Lock(); defer i.mu.Unlock(); end(); return nil }, nil
	}
}

// hooks is the issuer in the hands of the kit.
func (i *issuer) hooks() conformance.Issuer {
	return conformance.Issuer{
		Mint: func(_ context.Context, _ *pluginv1.TaskRef, id string) (*pluginv1.Grant, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.tokens[id] = "token-of-" + id
			return &pluginv1.Grant{GrantId: id, Env: map[string]string{"TOKEN": i.tokens[id]}}, nil
		},
		Accepts: func(_ context.Context, g *pluginv1.Grant) (bool, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			return i.tokens[g.GetGrantId()] != "", nil
		},
		Away:   func(context.Context) (func() error, error) { i.close(); return i.open, nil },
		Refuse: i.set(func() { i.status = http.StatusForbidden }, func() { i.status = 0 }),
		Stall:  i.set(func() { i.stall = make(chan struct{}) }, func() { close(i.stall); i.stall = nil }),
		Lie:    i.set(func() { i.lie = true }, func() { i.lie = false }),
		Answer: func(stop string) []byte { i.mu.Lock(); defer i.mu.Unlock(); return []byte(i.answers[stop]) },
	}
}
