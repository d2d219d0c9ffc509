package main

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// state is the instance's directory. It holds
//
//	key            32 random bytes, from which every password is derived
//	grants/NAME    a record for each grant, by the name of its role
//
// Passwords are derived and not stored, so that the same grant answers the
// same credential after any crash, and a later process can try a login to see
// whether a credential still works. Whoever reads the key has the passwords of
// the grants that are alive; it is worth what they are worth.
//
// A record is written before the role is made and stays when the grant is
// revoked: a Grant that was on its way while the stop ran finds it and is
// refused, in this process or in its successor.
type state struct {
	dir string
	key []byte
}

// record is what is kept of a grant.
type record struct {
	Revoked  bool      `json:"revoked"`
	Server   string    `json:"server"` // system identifier of the server that has the role
	At       time.Time `json:"at"`
	Evidence string    `json:"evidence,omitempty"` // what the evidence digest is of
}

// keepRevoked is how long the record of a revoked grant is kept: far longer
// than any call can be on its way.
const keepRevoked = 30 * 24 * time.Hour

func openState(dir string) (*state, error) {
	s := &state{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "grants"), 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "key")
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		tmp := path + "." + rand.Text()
		if err := writeSynced(tmp, key); err != nil {
			return nil, err
		}
		// The first of two processes wins; Link does not replace.
		err := os.Link(tmp, path)
		_ = os.Remove(tmp)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := syncDir(dir); err != nil {
			return nil, err
		}
		key, err = os.ReadFile(path)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("%s has %d bytes, not 32; restore it, or remove it and revoke what is granted", path, len(key))
	}
	s.key = key
	s.forget(time.Now().Add(-keepRevoked))
	return s, nil
}

// password is the password of a role. It says nothing of any other.
func (s *state) password(role string) (string, error) {
	b, err := hkdf.Key(sha256.New, s.key, nil, "airlock postgres password of "+role, 32)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// keyID tells keys apart without telling them.
func (s *state) keyID() string {
	sum := sha256.Sum256(append([]byte("airlock key id "), s.key...))
	return hex.EncodeToString(sum[:4])
}

func (s *state) path(role string) string { return filepath.Join(s.dir, "grants", role) }

// read is nil for a role without a record.
func (s *state) read(role string) (*record, error) {
	b, err := os.ReadFile(s.path(role))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(role), err)
	}
	return &r, nil
}

func (s *state) write(role string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, "grants", "."+rand.Text())
	if err := writeSynced(tmp, b); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.path(role)); err != nil {
		return err
	}
	return syncDir(filepath.Join(s.dir, "grants"))
}

// forget removes old records of revoked grants, and what a crash has left.
func (s *state) forget(before time.Time) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "grants"))
	if err != nil {
		return // the next start looks again
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.ModTime().After(before) {
			continue
		}
		if r, err := s.read(e.Name()); e.Name()[0] == '.' || err == nil && r != nil && r.Revoked {
			_ = os.Remove(s.path(e.Name()))
		}
	}
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
