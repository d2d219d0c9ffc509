package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Reader reads an export line by line. It checks form only; the chain is
// checked by Chain.
type Reader struct {
	r      *bufio.Reader
	long   []byte // a line longer than the buffer
	plain  []byte // a string without its escapes
	line   int
	offset int64
	next   int64
	kinds  map[string]Kind // one string for each kind, not one for each event
	task   string          // the last task id, likewise
}

// NewReader reads an export from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 128<<10), kinds: map[string]Kind{}}
}

// NewParser is a reader without an input, for Parse alone.
func NewParser() *Reader { return &Reader{kinds: map[string]Kind{}} }

// Pos is the number of the last line read, from 1, and its first byte's offset.
func (r *Reader) Pos() (line int, offset int64) { return r.line, r.offset }

// Next reads the next event, or gives io.EOF. A line that is no event is a
// *ChainError: FaultTorn if the file ends inside it, else FaultMalformed.
func (r *Reader) Next(ev *Event) error {
	text, err := r.readLine()
	if len(text) == 0 && errors.Is(err, io.EOF) {
		return io.EOF
	}
	r.line++
	r.offset = r.next
	r.next += int64(len(text))
	if errors.Is(err, io.EOF) {
		return r.fault(FaultTorn, "the file ends inside this record, after %d bytes of it", len(text))
	}
	if err != nil {
		return fmt.Errorf("read journal export at line %d (offset %d): %w", r.line, r.offset, err)
	}
	if err := r.Parse(text[:len(text)-1], ev); err != nil {
		return r.fault(FaultMalformed, "%v", err)
	}
	return nil
}

// Parse reads one line that the caller has found, without its newline. The
// reader's own input is left alone.
func (r *Reader) Parse(line []byte, ev *Event) error {
	if r.canonical(line, ev) {
		return nil
	}
	return decodeAny(line, ev)
}

// readLine gives one line with its newline; valid until the next call.
func (r *Reader) readLine() ([]byte, error) {
	text, err := r.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, err
	}
	r.long = r.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		r.long = append(r.long, text...)
		text, err = r.r.ReadSlice('\n')
	}
	r.long = append(r.long, text...)
	return r.long, err
}

func (r *Reader) fault(f Fault, format string, args ...any) error {
	return &ChainError{Fault: f, TaskID: r.task, Line: r.line, Offset: r.offset, Detail: fmt.Sprintf(format, args...)}
}

// decodeAny reads an event whose JSON was written by somebody else: any order
// of fields, any escapes, but exactly the eight fields, each once.
func decodeAny(text []byte, ev *Event) error {
	if !utf8.Valid(text) {
		return errors.New("the line is not UTF-8")
	}
	if err := onlyOnce(text); err != nil {
		return err
	}
	var w struct {
		Sequence     *uint64 `json:"sequence"`
		EventID      *string `json:"event_id"`
		TaskID       *string `json:"task_id"`
		Timestamp    *string `json:"timestamp"`
		Kind         *Kind   `json:"kind"`
		Payload      *string `json:"payload"`
		PreviousHash *Digest `json:"previous_hash"`
		Digest       *Digest `json:"digest"`
	}
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	if w.Sequence == nil || w.EventID == nil || w.TaskID == nil || w.Timestamp == nil ||
		w.Kind == nil || w.Payload == nil || w.PreviousHash == nil || w.Digest == nil {
		return errors.New("the record lacks one of its eight fields")
	}
	at, err := time.Parse(TimeLayout, *w.Timestamp)
	if err != nil || at.Format(TimeLayout) != *w.Timestamp {
		return fmt.Errorf("the timestamp %q is not written as %s", *w.Timestamp, TimeLayout)
	}
	*ev = Event{*w.Sequence, *w.EventID, *w.TaskID, at, *w.Kind, *w.Payload, *w.PreviousHash, *w.Digest}
	return nil
}

// fields are the eight fields of a record.
const fields = 8

// onlyOnce refuses an object with unknown or repeated names: encoding/json
// would take the last of two, another reader the first.
func onlyOnce(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("the line is not a JSON object")
	}
	seen := make(map[string]bool, fields)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		switch name {
		case "sequence", "event_id", "task_id", "timestamp", "kind", "payload", "previous_hash", "digest":
		default:
			return fmt.Errorf("the record has a field %q that events do not have", name)
		}
		if seen[name] {
			return fmt.Errorf("the record has the field %q twice", name)
		}
		seen[name] = true
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return err
		}
	}
	return nil
}
