package heads

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/heads/record"
)

// Key is the host's signing key.
type Key struct {
	// ID names the key in records: the first 16 hex digits of the SHA-256 of
	// the public key.
	ID      string
	Public  ed25519.PublicKey
	private ed25519.PrivateKey
}

// String keeps the private key out of logs.
func (k Key) String() string { return "key " + k.ID }

// Derive gives a secret of 32 bytes for one purpose, always the same one.
func (k Key) Derive(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, k.private.Seed(), nil, purpose, 32)
	if err != nil {
		panic(err) // 32 bytes are not too many
	}
	return secret
}

// GoString likewise.
func (k Key) GoString() string { return k.String() }

const privateType = "PRIVATE KEY"

// LoadOrCreateKey reads the Ed25519 key (PKCS #8, PEM) at path. If there is
// none it makes one, mode 0400, with its public half beside it at path.pub,
// mode 0444; a missing directory is made with mode 0700. A key that others may
// read is refused.
func LoadOrCreateKey(path string) (Key, error) {
	key, err := loadKey(path)
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Key{}, fmt.Errorf("make the host key's directory: %w", err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make the host key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Key{}, fmt.Errorf("make the host key: %w", err)
	}
	key = newKey(private)
	if err := writeOnce(path, pem.EncodeToMemory(&pem.Block{Type: privateType, Bytes: der})); err != nil {
		if errors.Is(err, os.ErrExist) { // another process was first
			return loadKey(path)
		}
		return Key{}, fmt.Errorf("write the host key: %w", err)
	}
	if err := renameio.WriteFile(path+".pub", key.record().PEM(), 0o444); err != nil {
		return Key{}, fmt.Errorf("write the host key's public half: %w", err)
	}
	return key, nil
}

// LoadPublicKey reads the public half, for those who verify elsewhere.
func LoadPublicKey(path string) (Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, err
	}
	key, err := record.ParseKey(text)
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", path, err)
	}
	return Key{ID: key.ID, Public: key.Public}, nil
}

// record is the public half.
func (k Key) record() record.Key { return record.Key{ID: k.ID, Public: k.Public} }

func loadKey(path string) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("read the host key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, fmt.Errorf("read the host key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Key{}, fmt.Errorf("the host key %s has mode %04o: others may read it; make it 0400, or remove it if it may be known to others", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return Key{}, fmt.Errorf("read the host key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateType {
		return Key{}, fmt.Errorf("the host key %s is not a PEM private key", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("the host key %s cannot be read: %w", path, err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return Key{}, fmt.Errorf("the host key %s is not an Ed25519 key", path)
	}
	return newKey(private), nil
}

func newKey(private ed25519.PrivateKey) Key {
	public, _ := private.Public().(ed25519.PublicKey)
	return Key{ID: record.KeyID(public), Public: public, private: private}
}

// writeOnce makes a whole, synced file of mode 0400 appear at path, or gives
// os.ErrExist.
func writeOnce(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".host-key-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(0o400), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
