package retention

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
)

// Extension is how the name of a bundle ends.
const Extension = ".evidence"

// bundled is a mission's bundle.
type bundled struct {
	head     journal.Head // that it ends at
	key      record.Key   // that it is signed with
	file     string
	sessions []string // that the mission had
}

// bundle makes a mission's bundle: DIR/YEAR-MONTH/HASH-DIGEST.evidence, of the mission's id and of its head.
// It has that name only once it is synced, was read back, and verifies. A bundle
// that is there already was left by a crash, and is made again.
func (k *Keeper) bundle(ctx context.Context, row *store.MissionRow) (b bundled, err error) {
	// Against the trusted head too: what was cut or rewritten is not archived, and
	// so not removed.
	if b.head, _, err = k.o.Store.Check(ctx, row.MissionID); err != nil {
		return b, fmt.Errorf("its journal does not verify and is kept: %w", err)
	}
	dir := filepath.Join(k.o.Rules.Dir, row.UpdatedAt.UTC().Format("2006-01"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return b, err
	}
	id := sha256.Sum256([]byte(row.MissionID))
	b.file = filepath.Join(dir, hex.EncodeToString(id[:16])+"-"+b.head.Digest.String()[:16]+Extension)
	tmp := b.file + ".part" // one pass at a time: nobody else writes it
	if err = k.write(ctx, tmp, &b); err == nil {
		err = k.o.Hook.At(PointWritten)
	}
	if err == nil {
		err = check(tmp, b.head, b.key)
	}
	if err != nil {
		return b, errors.Join(err, remove(tmp))
	}
	if err := os.Rename(tmp, b.file); err != nil {
		return b, err
	}
	for _, d := range []string{dir, k.o.Rules.Dir} {
		if err := syncDir(d); err != nil {
			return b, err
		}
	}
	return b, k.o.Hook.At(PointNamed)
}

func (k *Keeper) write(ctx context.Context, path string, b *bundled) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = k.fill(ctx, f, b); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (k *Keeper) fill(ctx context.Context, f *os.File, b *bundled) error {
	w, err := evidence.NewWriter(f, b.head)
	if err != nil {
		return err
	}
	for after := uint64(0); after < b.head.Sequence; {
		page, err := k.o.Store.Events(ctx, b.head.TaskID, after, 100)
		if err == nil && len(page) == 0 {
			err = fmt.Errorf("the journal ends at %d, its head is %d", after, b.head.Sequence)
		}
		if err != nil {
			return err
		}
		for i := range page {
			if page[i].Sequence > b.head.Sequence {
				break
			}
			if err := w.Event(&page[i]); err != nil {
				return err
			}
			if s := sessionOf(&page[i]); s != "" {
				b.sessions = append(b.sessions, s)
			}
		}
		after = page[len(page)-1].Sequence
	}
	var signed record.Record
	signed, b.key = k.o.Sign(journal.NewHead{Head: b.head, Ended: true})
	return w.Close(signed, b.key)
}

// sessionOf is the session that a starting event names.
func sessionOf(ev *journal.Event) string {
	if ev.Kind != journal.Starting {
		return ""
	}
	var p struct {
		SessionID string `json:"session_id"`
	}
	_ = json.Unmarshal([]byte(ev.Payload), &p) // one without has none
	return p.SessionID
}

// check reads a bundle back.
func check(path string, head journal.Head, key record.Key) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := evidence.Verify(f, &key)
	if err != nil {
		return fmt.Errorf("the bundle does not read back: %w", err)
	}
	if got.TaskID != head.TaskID || got.Digest != head.Digest {
		return fmt.Errorf("the bundle reads back as task %q with digest %s", got.TaskID, got.Digest)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
