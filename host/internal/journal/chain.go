package journal

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Fault is what is wrong with a chain.
type Fault string

// The faults.
const (
	FaultTorn        Fault = "torn"         // the file ends inside a record
	FaultMalformed   Fault = "malformed"    // a line is no event
	FaultEmpty       Fault = "empty"        // no event at all
	FaultOpening     Fault = "opening"      // the first event is no task_opened with a journal_uuid
	FaultGenesis     Fault = "genesis"      // the first event does not follow from task and journal_uuid
	FaultForeignTask Fault = "foreign_task" // an event of another task
	FaultGap         Fault = "gap"          // events are missing before this one
	FaultDuplicate   Fault = "duplicate"    // the same sequence again
	FaultReordered   Fault = "reordered"    // an earlier sequence after a later one
	FaultBroken      Fault = "broken"       // the previous digest is not that of the event before
	FaultChanged     Fault = "changed"      // the content does not match its digest
	FaultTruncated   Fault = "truncated"    // the chain ends before its trusted head
	FaultUntrusted   Fault = "untrusted"    // the chain is not the one that the trusted head was taken of
)

// ChainError says where a chain is bad and why. It is matched with errors.As.
type ChainError struct {
	Fault    Fault
	TaskID   string // the chain's task, if known
	Sequence uint64 // that was expected at this place
	Line     int    // of an export, from 1; 0: not read from one
	Offset   int64  // of that line's first byte
	Detail   string
}

// Error implements error.
func (e *ChainError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf("line %d (offset %d), ", e.Line, e.Offset)
	}
	return fmt.Sprintf("journal is %s at %ssequence %d: %s", e.Fault, where, e.Sequence, e.Detail)
}

// Chain checks events one after the other. It is a value of constant size: a
// chain of any length is checked in constant memory.
type Chain struct {
	head    Head
	trusted *Head
	crossed bool // the trusted head was reached and matched
	buf     []byte
}

// NewChain checks a whole chain, from its task_opened event on. With a trusted
// head the chain has to contain it.
func NewChain(trusted *Head) *Chain {
	return &Chain{trusted: trusted, crossed: trusted != nil && trusted.Sequence == 0}
}

// ResumeChain checks what follows a head that is known to be good.
func ResumeChain(from Head, trusted *Head) *Chain {
	c := &Chain{head: from, trusted: trusted}
	c.crossed = trusted != nil && trusted.Sequence <= from.Sequence
	return c
}

// Head is the end of what was checked so far.
func (c *Chain) Head() Head { return c.head }

// Add checks the next event. After an error the chain is bad for good; the
// event was not taken.
func (c *Chain) Add(ev *Event) error {
	if c.head.TaskID == "" {
		if err := c.open(ev); err != nil {
			return err
		}
	}
	want := c.head.Sequence + 1
	switch {
	case ev.TaskID != c.head.TaskID:
		return c.fault(FaultForeignTask, "the event belongs to task %q, the journal to %q", ev.TaskID, c.head.TaskID)
	case ev.Sequence == c.head.Sequence && ev.Sequence != 0:
		return c.fault(FaultDuplicate, "sequence %d is there twice", ev.Sequence)
	case ev.Sequence < want:
		return c.fault(FaultReordered, "sequence %d comes after %d", ev.Sequence, c.head.Sequence)
	case ev.Sequence > want:
		return c.fault(FaultGap, "the next event is %d, %d missing", ev.Sequence, ev.Sequence-want)
	}
	var sum Digest
	if sum, c.buf = ev.sum(c.buf); sum != ev.Digest {
		return c.fault(FaultChanged, "the %s event's content gives digest %s, recorded is %s", ev.Kind, sum, ev.Digest)
	}
	if ev.PreviousHash != c.head.Digest {
		fault, what := FaultBroken, "the event before"
		if want == 1 {
			fault, what = FaultGenesis, "the task and its journal_uuid"
		}
		return c.fault(fault, "previous_hash is %s, %s gives %s", ev.PreviousHash, what, c.head.Digest)
	}
	c.head.Sequence, c.head.Digest = ev.Sequence, ev.Digest
	if c.trusted != nil && !c.crossed && c.trusted.Sequence == ev.Sequence {
		if c.trusted.Digest != ev.Digest {
			return c.fault(FaultUntrusted, "the trusted head has digest %s at this sequence, the journal has %s", c.trusted.Digest, ev.Digest)
		}
		c.crossed = true
	}
	return nil
}

// open takes task and journal id from the first event.
func (c *Chain) open(ev *Event) error {
	if ev.Sequence != 1 {
		c.head.TaskID = ev.TaskID // so that the fault names it
		fault := FaultGap
		if ev.Sequence == 0 {
			fault = FaultMalformed
		}
		return c.fault(fault, "the first event has sequence %d", ev.Sequence)
	}
	id, err := OpeningUUID(ev)
	if err != nil {
		return c.fault(FaultOpening, "%v", err)
	}
	c.head = Genesis(ev.TaskID, id)
	t := c.trusted
	switch {
	case t == nil:
	case t.TaskID != ev.TaskID:
		return c.fault(FaultForeignTask, "the trusted head is of task %q, the journal of %q", t.TaskID, ev.TaskID)
	case t.JournalUUID != id:
		return c.fault(FaultUntrusted, "the trusted head is of journal %s, this is %s", t.JournalUUID, id)
	}
	return nil
}

// End says whether the chain may end here: it has an event, and contains the
// trusted head.
func (c *Chain) End() error {
	if c.head.Sequence == 0 {
		return c.fault(FaultEmpty, "no event")
	}
	if c.trusted != nil && !c.crossed {
		return c.fault(FaultTruncated, "the journal ends at sequence %d, its trusted head is at %d", c.head.Sequence, c.trusted.Sequence)
	}
	return nil
}

func (c *Chain) fault(f Fault, format string, args ...any) error {
	return &ChainError{Fault: f, TaskID: c.head.TaskID, Sequence: c.head.Sequence + 1, Detail: fmt.Sprintf(format, args...)}
}

// OpeningUUID reads the journal's id from its first event: task_opened, whose
// payload has "journal_uuid".
func OpeningUUID(ev *Event) (string, error) {
	if ev.Kind != TaskOpened {
		return "", fmt.Errorf("the first event is %s, not %s", ev.Kind, TaskOpened)
	}
	var p struct {
		ID string `json:"journal_uuid"`
	}
	if err := json.Unmarshal([]byte(ev.Payload), &p); err != nil {
		return "", fmt.Errorf("the payload of task_opened cannot be read: %w", err)
	}
	if p.ID == "" {
		return "", errors.New("the payload of task_opened has no journal_uuid")
	}
	return p.ID, nil
}
