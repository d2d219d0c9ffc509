package result

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
)

// Baseline writes down what a workspace began as. Its file appears whole, by
// Close, or not at all.
type Baseline struct {
	pending *renameio.PendingFile
	buf     *bufio.Writer
	enc     *gob.Encoder
}

// NewBaseline begins a baseline that Close puts at path.
func NewBaseline(path string) (*Baseline, error) {
	pending, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600))
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriterSize(pending, 256<<10)
	return &Baseline{pending: pending, buf: buf, enc: gob.NewEncoder(buf)}, nil
}

// Add writes an entry down.
func (b *Baseline) Add(e Entry) error { return b.enc.Encode(e) }

// Close makes the baseline durable.
func (b *Baseline) Close() error {
	if err := b.buf.Flush(); err != nil {
		return errors.Join(err, b.pending.Cleanup())
	}
	return b.pending.CloseAtomicallyReplace()
}

// Abandon drops a baseline that was not closed.
func (b *Baseline) Abandon() { _ = b.pending.Cleanup() }

// readBaseline gives the entries by path; a file that is not there is
// fs.ErrNotExist.
func readBaseline(path string) (map[string]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dec := gob.NewDecoder(bufio.NewReaderSize(f, 256<<10))
	out := map[string]Entry{}
	for {
		var e Entry
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("what the workspace began as (%s): %w", path, err)
		}
		out[e.Path] = e
	}
}
