package cellagent

import (
	"sort"
	"sync"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

const (
	blockSize  = 32 << 10 // of output storage, and of the largest piece handed out
	firstBlock = 4 << 10
	// segmentCost is what one change of stream counts against the limit, so
	// that alternating single bytes cannot hold many times the limit.
	segmentCost = 16
)

// buffer holds a session's output, both streams in one offset space, from base
// (the first byte that was neither acknowledged nor dropped) to next.
type buffer struct {
	limit uint64
	drop  bool // when full: drop the oldest; else appends wait

	mu      sync.Mutex
	changed chan struct{} // closed at every change
	base    uint64
	next    uint64
	blocks  []block
	segs    []segment
	ended   bool
	nolimit bool
	spare   []byte
	tail    *tail // the newest bytes, when somebody renders the screen
}

// block is a run of bytes; only its end grows.
type block struct {
	at   uint64
	data []byte
}

// segment says which stream the bytes from at on came from.
type segment struct {
	at     uint64
	stream cellv1.Stream
}

func newBuffer(limit uint64, drop bool) *buffer {
	return &buffer{limit: limit, drop: drop, changed: make(chan struct{})}
}

// signal wakes all who wait. The lock is held.
func (b *buffer) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *buffer) held() uint64 { return b.next - b.base + uint64(len(b.segs))*segmentCost }

// room waits until an append of at least one byte is allowed and says how many
// bytes are; 0 = stop was closed.
func (b *buffer) room(stop <-chan struct{}) int {
	for {
		b.mu.Lock()
		held, changed := b.held(), b.changed
		free := b.drop || b.nolimit
		b.mu.Unlock()
		switch {
		case free:
			return blockSize
		case held+segmentCost < b.limit:
			return int(min(b.limit-held-segmentCost, blockSize))
		}
		select {
		case <-changed:
		case <-stop:
			return 0
		}
	}
}

// append stores bytes. It never waits: ask room first.
func (b *buffer) append(stream cellv1.Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tail != nil {
		b.tail.add(p)
	}
	if n := len(b.segs); n == 0 || b.segs[n-1].stream != stream {
		b.segs = append(b.segs, segment{b.next, stream})
	}
	for len(p) > 0 {
		last := len(b.blocks) - 1
		if last < 0 || len(b.blocks[last].data) == cap(b.blocks[last].data) {
			b.blocks = append(b.blocks, block{b.next, b.newBlock(len(p))})
			last++
		}
		bl := &b.blocks[last]
		n := copy(bl.data[len(bl.data):cap(bl.data)], p)
		bl.data = bl.data[:len(bl.data)+n]
		b.next += uint64(n)
		p = p[n:]
	}
	if b.drop && b.held() > b.limit {
		b.release(b.next - min(b.limit, b.next))
		for b.held() > b.limit && len(b.segs) > 1 {
			b.release(b.segs[len(b.segs)/2].at)
		}
	}
	b.signal()
}

func (b *buffer) newBlock(want int) []byte {
	if b.spare != nil {
		s := b.spare
		b.spare = nil
		return s
	}
	if len(b.blocks) == 0 && want <= firstBlock {
		return make([]byte, 0, firstBlock)
	}
	return make([]byte, 0, blockSize)
}

// ack forgets everything before offset.
func (b *buffer) ack(offset uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset = min(offset, b.next); offset > b.base {
		b.release(offset)
		b.signal()
	}
}

// release moves base up to offset. The lock is held.
func (b *buffer) release(offset uint64) {
	b.base = max(b.base, offset)
	i := 0
	for i < len(b.blocks) && b.blocks[i].at+uint64(len(b.blocks[i].data)) <= b.base {
		if d := b.blocks[i].data; cap(d) == blockSize {
			b.spare = d[:0] // readers copy under the lock, so nobody looks at it
		}
		i++
	}
	b.blocks = append(b.blocks[:0], b.blocks[i:]...)
	clear(b.blocks[len(b.blocks):cap(b.blocks)])
	i = sort.Search(len(b.segs), func(k int) bool { return b.segs[k].at > b.base })
	if i > 1 {
		b.segs = append(b.segs[:0], b.segs[i-1:]...)
	}
	if b.base == b.next {
		b.segs = b.segs[:0]
		b.spare = nil
	}
}

// lift takes the limit away: what is still to come is bounded by the pipes.
func (b *buffer) lift() {
	b.mu.Lock()
	b.nolimit = true
	b.signal()
	b.mu.Unlock()
}

// end says that nothing more comes, and returns the end offset.
func (b *buffer) end() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		b.signal()
	}
	return b.next
}

func (b *buffer) offsets() (base, next uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.base, b.next
}

// piece is what read returns.
type piece struct {
	from    uint64 // where it begins; higher than asked for = a gap
	stream  cellv1.Stream
	n       int
	end     bool            // nothing is or will be there
	changed <-chan struct{} // nothing is there yet
}

// read copies what is held at an offset into p: a run of one stream. An offset
// beyond the end is clipped to it.
func (b *buffer) read(at uint64, p []byte) piece {
	b.mu.Lock()
	defer b.mu.Unlock()
	at = min(max(at, b.base), b.next)
	if at == b.next {
		return piece{from: at, end: b.ended, changed: b.changed}
	}
	i := sort.Search(len(b.blocks), func(k int) bool { return b.blocks[k].at > at }) - 1
	s := sort.Search(len(b.segs), func(k int) bool { return b.segs[k].at > at }) - 1
	run := b.blocks[i].data[at-b.blocks[i].at:]
	if s+1 < len(b.segs) {
		run = run[:min(uint64(len(run)), b.segs[s+1].at-at)]
	}
	return piece{from: at, stream: b.segs[s].stream, n: copy(p, run)}
}
