package cellagent

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

// The buffer against a model that keeps everything.
func TestBufferAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		drop := rapid.Bool().Draw(t, "drop")
		limit := rapid.Uint64Range(64, 200_000).Draw(t, "limit")
		b := newBuffer(limit, drop)
		var all []byte
		var streams []cellv1.Stream
		acked := uint64(0)
		stop := make(chan struct{})
		close(stop)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				n := b.room(stop)
				if n == 0 {
					t.Skip("full")
				}
				p := bytes.Repeat([]byte{byte(len(all))}, rapid.IntRange(1, n).Draw(t, "n"))
				s := rapid.SampledFrom([]cellv1.Stream{cellv1.Stream_STREAM_STDOUT, cellv1.Stream_STREAM_STDERR}).Draw(t, "stream")
				b.append(s, p)
				all = append(all, p...)
				for range p {
					streams = append(streams, s)
				}
			},
			"ack": func(t *rapid.T) {
				at := rapid.Uint64Range(0, uint64(len(all))+10).Draw(t, "at")
				b.ack(at)
				acked = max(acked, min(at, uint64(len(all))))
			},
			"": func(t *rapid.T) {
				base, next := b.offsets()
				if next != uint64(len(all)) || base < acked || (!drop && base != acked) {
					t.Fatalf("base %d next %d, acknowledged %d of %d", base, next, acked, len(all))
				}
				if next-base > limit {
					t.Fatalf("holds %d of a limit of %d", next-base, limit)
				}
				buf := make([]byte, blockSize)
				from := rapid.Uint64Range(0, next).Draw(t, "from")
				for at := from; ; {
					p := b.read(at, buf)
					if p.from != max(at, base) {
						t.Fatalf("read at %d begins at %d, base %d", at, p.from, base)
					}
					if p.n == 0 {
						if p.from != next || p.changed == nil {
							t.Fatalf("nothing at %d of %d", p.from, next)
						}
						break
					}
					at = p.from + uint64(p.n)
					if !bytes.Equal(buf[:p.n], all[p.from:at]) {
						t.Fatalf("other bytes at %d", p.from)
					}
					for _, s := range streams[p.from:at] {
						if s != p.stream {
							t.Fatalf("stream %v at %d", p.stream, p.from)
						}
					}
				}
			},
		})
	})
}

func TestBufferOfAlternatingBytesStaysNearItsLimit(t *testing.T) {
	t.Parallel()
	b := newBuffer(64<<10, true)
	for i := range 200_000 {
		b.append(cellv1.Stream(1+i%2), []byte{1})
	}
	if n := len(b.segs); n > 64<<10/segmentCost {
		t.Errorf("%d segments", n)
	}
	if base, next := b.offsets(); next-base < 1000 {
		t.Errorf("only %d bytes are held", next-base)
	}
}
