package cellagent

import (
	"fmt"
	"os"
	"sync"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const (
	maxInput      = 1 << 20 // bytes of one Input
	maxInputQueue = 4 << 20 // bytes that wait for a workload that does not read
	maxInputCount = 1024    // and frames
	maxKeys       = 1024    // keys that are remembered
	maxKeySize    = 256
)

// input writes to a session's standard input, one frame after the other, each
// whole. It has a goroutine of its own, for a workload that does not read may
// block it for ever.
type input struct {
	s    *session
	file *os.File
	line lineState // of a terminal

	mu      sync.Mutex
	queue   []*entry
	bytes   int
	keys    map[string]*entry // applied or waiting
	applied []string          // oldest first
	shut    bool              // CloseInput came: nothing more for a pipe
	closed  bool
	more    chan struct{}
	quit    chan struct{}
	writes  uint64 // frames written
}

// entry is one frame on its way; done tells those who wait for it.
type entry struct {
	key     string
	data    []byte
	eof     bool
	always  bool // written under the stop latch too
	waiting []func(error)
	ended   bool
	err     error
}

func newInput(s *session, file *os.File) *input {
	in := &input{
		s: s, file: file, keys: make(map[string]*entry),
		more: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	go in.run()
	return in
}

// put queues bytes; done is called once, when they are written or never will
// be.
func (in *input) put(key string, data []byte, always bool, done func(error)) {
	if len(data) > maxInput || len(key) > maxKeySize {
		done(refuse(cellv1.ErrorCode_ERROR_CODE_INVALID, fmt.Sprintf("input is at most %d bytes, its key %d", maxInput, maxKeySize)))
		return
	}
	in.add(&entry{key: key, data: data, always: always}, done)
}

// shutdown queues the end of the input.
func (in *input) shutdown(done func(error)) { in.add(&entry{eof: true}, done) }

func (in *input) add(e *entry, done func(error)) {
	err := func() error {
		in.mu.Lock()
		defer in.mu.Unlock()
		if old := in.keys[e.key]; e.key != "" && old != nil {
			if old.ended {
				return old.err
			}
			old.waiting = append(old.waiting, done)
			done = nil
			return nil
		}
		switch {
		case in.shut && e.eof && in.s.term == nil:
			return nil // closed already, or about to be
		case in.closed || (in.shut && in.s.term == nil):
			return errInputClosed()
		case in.bytes+len(e.data) > maxInputQueue || len(in.queue) >= maxInputCount:
			return refuse(cellv1.ErrorCode_ERROR_CODE_INTERNAL, "the workload does not read, and the queue of its input is full")
		}
		e.waiting = append(e.waiting, done)
		done = nil
		in.shut = in.shut || e.eof
		if e.key != "" {
			in.keys[e.key] = e
		}
		in.bytes += len(e.data)
		in.queue = append(in.queue, e)
		return nil
	}()
	if done != nil {
		done(err)
		return
	}
	select {
	case in.more <- struct{}{}:
	default:
	}
}

func errInputClosed() error {
	return refuse(cellv1.ErrorCode_ERROR_CODE_CLOSED, "the session has ended, or its input is closed")
}

// run writes what is queued until the input is closed.
func (in *input) run() {
	for {
		e := in.next()
		if e == nil {
			return
		}
		var err error
		if !e.always { // what still waits when the latch is set is not written
			err = in.s.agent.checkLatch()
		}
		if err == nil {
			err = in.write(e)
		}
		in.settle(e, err)
	}
}

func (in *input) next() *entry {
	for {
		in.mu.Lock()
		if in.closed {
			in.mu.Unlock()
			return nil
		}
		if len(in.queue) > 0 {
			e := in.queue[0]
			in.queue = append(in.queue[:0], in.queue[1:]...)
			in.mu.Unlock()
			return e
		}
		in.mu.Unlock()
		select {
		case <-in.more:
		case <-in.quit:
		}
	}
}

func (in *input) write(e *entry) error {
	data := e.data
	if in.s.term != nil {
		data = in.line.prepare(in.file, e)
	} else if e.eof {
		_ = in.file.Close()
		return nil
	}
	_, err := in.file.Write(data)
	if err != nil {
		if isClosedFile(err) {
			return errInputClosed()
		}
		return refuse(cellv1.ErrorCode_ERROR_CODE_INTERNAL, "write: "+err.Error())
	}
	return nil
}

// settle tells who waits. A frame that was not written may come again under
// its key; one that was is never written twice.
func (in *input) settle(e *entry, err error) {
	in.mu.Lock()
	e.ended, e.err = true, err
	waiting := e.waiting
	in.bytes -= len(e.data)
	e.waiting, e.data = nil, nil
	if err == nil {
		in.writes++
	}
	if e.key != "" {
		if err != nil {
			delete(in.keys, e.key)
		} else {
			if len(in.applied) == maxKeys {
				delete(in.keys, in.applied[0])
				in.applied = append(in.applied[:0], in.applied[1:]...)
			}
			in.applied = append(in.applied, e.key)
		}
	}
	in.mu.Unlock()
	for _, done := range waiting {
		done(err)
	}
}

// close ends the input when the session ends.
func (in *input) close() {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return
	}
	in.closed = true
	left := in.queue
	in.queue = nil
	in.mu.Unlock()
	close(in.quit)
	_ = in.file.Close() // also ends a write that is blocked
	for _, e := range left {
		in.settle(e, errInputClosed())
	}
}

func (in *input) appliedKeys() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]string(nil), in.applied...)
}

// written counts the frames that were written.
func (in *input) written() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.writes
}
