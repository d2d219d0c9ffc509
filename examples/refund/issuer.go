package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// issuer gives the agent access to the payment system, and takes it back when
// the host's webhook revoker asks for it. It believes signed requests only.
type issuer struct {
	url    string
	secret string
	server *http.Server

	mu      sync.Mutex
	revoked map[string]int // by idempotency key: how often it was asked
}

func startIssuer() (*issuer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &issuer{url: "http://" + l.Addr().String() + "/revoke", secret: randomHex(), revoked: map[string]int{}}
	i.server = &http.Server{Handler: http.HandlerFunc(i.revoke)} //nolint:gosec // loopback, for a minute
	go func() { _ = i.server.Serve(l) }()
	return i, nil
}

func (i *issuer) close() { _ = i.server.Close() }

// revoke cuts the access of the whole task, its sessions and delegations, and
// says so with the literal true: anything else would not count.
func (i *issuer) revoke(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || !i.signed(r.Header.Get("Airlock-Signature"), body) {
		http.Error(w, "the signature is not right", http.StatusUnauthorized)
		return
	}
	i.mu.Lock()
	i.revoked[r.Header.Get("Idempotency-Key")]++
	i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"revoked": true})
}

func (i *issuer) signed(header string, body []byte) bool {
	at, mac, ok := strings.Cut(strings.TrimPrefix(header, "t="), ",v1=")
	if !ok {
		return false
	}
	h := hmac.New(sha256.New, []byte(i.secret))
	h.Write([]byte(at + "."))
	h.Write(body)
	return hmac.Equal([]byte(hex.EncodeToString(h.Sum(nil))), []byte(mac))
}

// stops is how many different stops the issuer was asked for.
func (i *issuer) stops() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.revoked)
}

func randomHex() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
