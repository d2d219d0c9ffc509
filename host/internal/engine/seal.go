package engine

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/airlock-host/airlock/host/internal/governance"
)

// sealed keeps arguments of decisions that wait for a human and that must not be
// stored in the clear, or are too large for the task's row: encrypted under a
// key of the host's, in a file for each decision, until it is answered. So a
// restart does not ask the process for them again.
type sealed struct {
	dir  string
	aead cipher.AEAD // nil: nothing is kept
}

func newSealed(dir string, key []byte) (sealed, error) {
	if len(key) == 0 {
		return sealed{}, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealed{}, err
	}
	aead, err := cipher.NewGCM(block)
	return sealed{dir: dir, aead: aead}, err
}

func (s sealed) path(taskID, decisionID string) string {
	return filepath.Join(s.dir, hashed(taskID), hashed(decisionID)+".sealed")
}

// what it is sealed for: it opens nowhere else.
func (s sealed) purpose(taskID, decisionID string) []byte {
	return fmt.Appendf(nil, "airlock.pending.v1\x00%s\x00%s", taskID, decisionID)
}

// put is durable when it returns.
func (s sealed) put(taskID, decisionID string, args json.RawMessage) error {
	if s.aead == nil {
		return nil
	}
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	path := s.path(taskID, decisionID)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, s.aead.Seal(nonce, nonce, args, s.purpose(taskID, decisionID)), 0o600)
}

func (s sealed) get(taskID, decisionID string) (json.RawMessage, bool) {
	if s.aead == nil {
		return nil, false
	}
	text, err := os.ReadFile(s.path(taskID, decisionID))
	if err != nil || len(text) < s.aead.NonceSize() {
		return nil, false
	}
	n := s.aead.NonceSize()
	args, err := s.aead.Open(nil, text[:n], text[n:], s.purpose(taskID, decisionID))
	return args, err == nil
}

func (s sealed) drop(taskID, decisionID string) error {
	if s.aead == nil {
		return nil
	}
	return notThere(os.Remove(s.path(taskID, decisionID)))
}

// dropTask forgets everything of a task that is over.
func (s sealed) dropTask(taskID string) error {
	if s.aead == nil {
		return nil
	}
	return os.RemoveAll(filepath.Join(s.dir, hashed(taskID)))
}

// sweep removes what nobody waits for any more: all but the decisions that the
// tasks still hold.
func (s sealed) sweep(tasks map[string]*governance.Task) error {
	if s.aead == nil {
		return nil
	}
	keep := map[string]bool{}
	for id, t := range tasks {
		for _, d := range t.Pending() {
			keep[s.path(id, d.ID)] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "*", "*"))
	for _, f := range files {
		if !keep[f] {
			err = errors.Join(err, notThere(os.Remove(f)))
		}
	}
	return err
}

func notThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
