package cell

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

const (
	magicSize    = 8
	nonceSize    = 16
	macSize      = 16
	preambleSize = magicSize + nonceSize + macSize
	// mark begins both magics; behind its preamble the host never sends it
	// without markLiteral or the rest of a magic behind it.
	mark        = 0xa7
	markLiteral = 0x00
)

const (
	hostMagic  = "\xa7ALCELL\x01"
	agentMagic = "\xa7ALCELL\x02"
)

type nonce [nonceSize]byte

func newNonce() nonce {
	var n nonce
	rand.Read(n[:]) // never fails: crypto/rand ends the program instead
	return n
}

// mac is the HMAC-SHA-256 over a label and the nonces. The labels differ so
// that no answer of one end can be sent back as an answer of the other.
func mac(secret []byte, label string, nonces ...nonce) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(label))
	for _, n := range nonces {
		h.Write(n[:])
	}
	return h.Sum(nil)
}

func hostPreamble(secret []byte, host nonce) []byte {
	p := append(make([]byte, 0, preambleSize), hostMagic...)
	p = append(p, host[:]...)
	return append(p, mac(secret, "airlock-cell preamble", host)[:macSize]...)
}

func agentPreamble(secret []byte, host, agent nonce) []byte {
	p := append(make([]byte, 0, preambleSize), agentMagic...)
	p = append(p, agent[:]...)
	return append(p, mac(secret, "airlock-cell agent", host, agent)[:macSize]...)
}

// hostProof is Hello.proof.
func hostProof(secret []byte, host, agent nonce) []byte {
	return mac(secret, "airlock-cell host", host, agent)
}

// parse splits a preamble and says whether its MAC is good. with is what the
// MAC covers in front of the preamble's own nonce.
func parse(secret, p []byte, magic, label string, with ...nonce) (nonce, bool) {
	var n nonce
	if len(p) != preambleSize || string(p[:magicSize]) != magic {
		return n, false
	}
	copy(n[:], p[magicSize:])
	want := mac(secret, label, append(with, n)...)[:macSize]
	return n, hmac.Equal(want, p[magicSize+nonceSize:])
}
