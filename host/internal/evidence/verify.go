package evidence

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// Report is what a good bundle shows.
type Report struct {
	TaskID      string         `json:"task_id"`
	JournalUUID string         `json:"journal_uuid"`
	Events      uint64         `json:"events"`
	Digest      journal.Digest `json:"digest"` // of the last event
	SignedAt    string         `json:"signed_at"`
	KeyID       string         `json:"key_id"`
	// Trusted: the head is signed by the key that the reader trusts. Without one
	// a bundle shows that it is whole, and not whose it is.
	Trusted bool           `json:"trusted"`
	Told    map[string]int `json:"evidence"` // how often each kind of evidence is there
	State   string         `json:"state,omitempty"`
}

// Verify reads a bundle to its end. key is the host's, as the reader knows it;
// nil: the signature is held against the bundle's own. What is wrong is a
// *DamageError; any other error is the reader's.
func Verify(r io.Reader, key *record.Key) (Report, error) {
	v := &verifier{r: bufio.NewReaderSize(r, 16<<10), sum: sha256.New(), rd: journal.NewParser()}
	v.report.Told = map[string]int{}
	if err := v.all(key); err != nil {
		return v.report, err
	}
	return v.report, nil
}

type verifier struct {
	r    *bufio.Reader
	sum  hash.Hash // of all lines before the current one
	last []byte    // the current line
	long []byte
	rd   *journal.Reader

	line         int
	offset, next int64

	report Report
	told   [][sha256.Size]byte // of the lines that must tell the events once more
	names  []string
}

func (v *verifier) all(key *record.Key) error {
	head, err := v.opening()
	if err != nil {
		return err
	}
	if err := v.events(head); err != nil {
		return err
	}
	for i, want := range v.told {
		text, err := v.read()
		if err != nil {
			return err
		}
		if sha256.Sum256(text) != want {
			return v.bad("it does not tell what the events say: a %s was expected", v.names[i])
		}
		v.report.Told[v.names[i]]++
	}
	if err := v.signature(head, key); err != nil {
		return err
	}
	return v.closing()
}

// opening reads the first line. What is no bundle is said in plain words.
func (v *verifier) opening() (journal.Head, error) {
	if begin, _ := v.r.Peek(len(Prefix)); !bytes.HasPrefix(begin, []byte(Prefix)) {
		v.line = 1
		return journal.Head{}, v.bad("this is no evidence bundle: a bundle is text that begins with %s%s", Prefix, guess(begin))
	}
	text, err := v.read()
	if err != nil {
		return journal.Head{}, err
	}
	var o opening
	if err := v.exactly(text, &o); err != nil {
		return journal.Head{}, err
	}
	if o.Version != version {
		return journal.Head{}, v.bad("it is a bundle of version %d, this program knows version %d", o.Version, version)
	}
	v.report.TaskID, v.report.JournalUUID, v.report.Events, v.report.Digest = o.TaskID, o.JournalUUID, o.Events, o.Digest
	return journal.Head{TaskID: o.TaskID, JournalUUID: o.JournalUUID, Sequence: o.Events, Digest: o.Digest}, nil
}

// guess names what somebody may have taken for a bundle.
func guess(begin []byte) string {
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}), bytes.HasPrefix(begin, []byte("PK")), bytes.HasPrefix(begin, []byte("\x28\xb5\x2f\xfd")), bytes.HasPrefix(begin, []byte("BZh")), bytes.HasPrefix(begin, []byte("\xfd7zXZ")):
		return "; this is compressed or an archive, and nothing is unpacked here"
	case bytes.HasPrefix(begin, []byte(`{"sequence":`)):
		return "; this is a plain export of a journal: `airlock journal verify` checks it"
	}
	return ""
}

func (v *verifier) events(head journal.Head) error {
	chain := journal.NewChain(&head)
	var ev journal.Event
	for chain.Head().Sequence < head.Sequence {
		text, err := v.read()
		if err != nil {
			return err
		}
		if err := v.rd.Parse(text[:len(text)-1], &ev); err != nil {
			return v.damage(fmt.Errorf("event %d is no event: %w", chain.Head().Sequence+1, err))
		}
		if err := chain.Add(&ev); err != nil {
			return v.damage(err)
		}
		for _, t := range tell(&ev) {
			text, err := line(t)
			if err != nil {
				return v.damage(err)
			}
			if len(v.told) == maxTold {
				return v.bad("more than %d events are evidence; this program checks no more", maxTold)
			}
			v.told, v.names = append(v.told, sha256.Sum256(text)), append(v.names, t.Evidence)
			if t.Evidence == "outcome" {
				v.report.State = t.State
			}
		}
	}
	if err := chain.End(); err != nil {
		return v.damage(err)
	}
	return nil
}

// signature checks the signed head: it is of this chain, and by the key that is
// trusted, or, if none is, by the one that stands beside it.
func (v *verifier) signature(head journal.Head, trusted *record.Key) error {
	text, err := v.read()
	if err != nil {
		return err
	}
	var s sealed
	if err := v.exactly(text, &s); err != nil {
		return err
	}
	key, err := record.ParseKey([]byte(s.PublicKey))
	if err != nil {
		return v.damage(fmt.Errorf("the bundle's public key: %w", err))
	}
	if trusted != nil {
		if !bytes.Equal(trusted.Public, key.Public) {
			return v.damage(fmt.Errorf("the head is signed by key %s, the key that you trust is %s", key.ID, trusted.ID))
		}
		v.report.Trusted = true
	}
	if err := s.Head.Verify(key); err != nil {
		return v.damage(err)
	}
	if len(s.Head.Heads) != 1 || s.Head.Heads[0].Head != head {
		return v.bad("the signed head is not that of these events")
	}
	v.report.SignedAt, v.report.KeyID = s.Head.TS, key.ID
	return nil
}

func (v *verifier) closing() error {
	want := closing{SHA256: hex.EncodeToString(v.sumBefore())}
	text, err := v.read()
	if err != nil {
		return err
	}
	exact, err := line(want)
	if err != nil {
		return err
	}
	if !bytes.Equal(text, exact) {
		return v.bad("the digest over the bundle is not %s", want.SHA256)
	}
	if _, err := v.r.ReadByte(); err == nil {
		v.line, v.offset = v.line+1, v.next
		return v.bad("there is text after the bundle's end")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// sumBefore is the digest of all that was read up to now.
func (v *verifier) sumBefore() []byte {
	v.sum.Write(v.last)
	v.last = nil
	return v.sum.Sum(nil)
}

// read gives the next line with its newline; valid until the next call.
func (v *verifier) read() ([]byte, error) {
	v.sum.Write(v.last)
	v.last = nil
	v.line, v.offset = v.line+1, v.next
	text, err := v.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		v.long = v.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			v.long = append(v.long, text...)
			if len(v.long) > maxLine {
				return nil, v.bad("the line is longer than %d bytes", maxLine)
			}
			text, err = v.r.ReadSlice('\n')
		}
		v.long = append(v.long, text...)
		text = v.long
	}
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return nil, v.bad("the bundle ends here: it was cut off")
	case errors.Is(err, io.EOF):
		return nil, v.bad("the bundle ends inside this line: it was cut off")
	case err != nil:
		return nil, fmt.Errorf("read the bundle at line %d: %w", v.line, err)
	}
	v.next += int64(len(text))
	v.last = text
	return text, nil
}

// exactly reads a line into a value and refuses any other way of writing it.
func (v *verifier) exactly(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return v.damage(err)
	}
	again, err := line(into)
	if err != nil {
		return v.damage(err)
	}
	if !bytes.Equal(text, again) {
		return v.bad("it is not written as this program writes it")
	}
	return nil
}

func (v *verifier) bad(format string, args ...any) error {
	return v.damage(fmt.Errorf(format, args...))
}

// damage puts the place into an error.
func (v *verifier) damage(err error) error {
	var ce *journal.ChainError
	if errors.As(err, &ce) && ce.Line == 0 {
		ce.Line, ce.Offset = v.line, v.offset
	}
	return &DamageError{Line: v.line, Offset: v.offset, Err: err}
}
