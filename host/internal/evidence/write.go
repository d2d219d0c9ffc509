package evidence

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

// Writer writes the bundle of one task.
type Writer struct {
	w     *bufio.Writer
	sum   hash.Hash
	head  journal.Head
	chain *journal.Chain
	told  [][]byte
	buf   []byte
}

// NewWriter begins a bundle of a chain that ends at head.
func NewWriter(w io.Writer, head journal.Head) (*Writer, error) {
	out := &Writer{w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New(), head: head, chain: journal.NewChain(&head)}
	return out, out.put(opening{Version: version, TaskID: head.TaskID, JournalUUID: head.JournalUUID, Events: head.Sequence, Digest: head.Digest})
}

// Event adds the next event. One that does not continue the chain is refused.
func (w *Writer) Event(ev *journal.Event) error {
	if err := w.chain.Add(ev); err != nil {
		return err
	}
	for _, t := range tell(ev) {
		text, err := line(t)
		if err != nil {
			return fmt.Errorf("event %d: %w", ev.Sequence, err)
		}
		w.told = append(w.told, text)
	}
	w.buf = append(ev.AppendExport(w.buf[:0]), '\n')
	return w.write(w.buf)
}

// Close tells the evidence, and ends the bundle with the signed head. Without
// Close it is none.
func (w *Writer) Close(signed record.Record, key record.Key) error {
	if err := w.chain.End(); err != nil {
		return err
	}
	if got := w.chain.Head(); got != w.head {
		return fmt.Errorf("the bundle has %d events, its head is at %d", got.Sequence, w.head.Sequence)
	}
	for _, text := range w.told {
		if err := w.write(text); err != nil {
			return err
		}
	}
	if err := w.put(sealed{Head: signed, PublicKey: string(key.PEM())}); err != nil {
		return err
	}
	text, err := line(closing{SHA256: hex.EncodeToString(w.sum.Sum(nil))})
	if err != nil {
		return err
	}
	if _, err := w.w.Write(text); err != nil {
		return err
	}
	return w.w.Flush()
}

func (w *Writer) put(v any) error {
	text, err := line(v)
	if err != nil {
		return err
	}
	return w.write(text)
}

func (w *Writer) write(text []byte) error {
	w.sum.Write(text)
	_, err := w.w.Write(text)
	return err
}
