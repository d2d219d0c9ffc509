package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
)

// PublicType is the PEM type of a public key.
const PublicType = "PUBLIC KEY"

// Key is the public half of a host's key.
type Key struct {
	ID     string // see KeyID
	Public ed25519.PublicKey
}

// KeyID names a key in records: the first 16 hex digits of the SHA-256 of the
// public key.
func KeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:8])
}

// spki is what stands before the 32 bytes of an Ed25519 key in a
// SubjectPublicKeyInfo (RFC 8410); it is the same for all of them.
var spki = []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}

// ParseKey reads a public key as LoadOrCreateKey of package heads writes it
// (key_file.pub): one PEM block with an Ed25519 key.
func ParseKey(text []byte) (Key, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != PublicType:
		return Key{}, errors.New("not a PEM public key")
	case len(bytes.TrimSpace(rest)) > 0:
		return Key{}, errors.New("there is text after the PEM public key")
	case len(block.Bytes) != len(spki)+ed25519.PublicKeySize || !bytes.HasPrefix(block.Bytes, spki):
		return Key{}, errors.New("not an Ed25519 public key")
	}
	public := ed25519.PublicKey(block.Bytes[len(spki):])
	return Key{ID: KeyID(public), Public: public}, nil
}

// PEM writes the key as ParseKey reads it.
func (k Key) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: PublicType, Bytes: append(bytes.Clone(spki), k.Public...)})
}
