package session

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// model is what a log should hold: every byte by offset with its stream, 0
// where the bytes are gone.
type model struct {
	stream   []Stream
	data     []byte
	finished bool
}

func (m *model) next() uint64 { return uint64(len(m.data)) }

// check reads the log in pieces of a random size from a random offset and
// compares it with the model.
func (m *model) check(t *rapid.T, l *Log) {
	if l.Next() != m.next() {
		t.Fatalf("next = %d, want %d", l.Next(), m.next())
	}
	base := l.Base()
	at := rapid.Uint64Range(0, m.next()+2).Draw(t, "from")
	limit := rapid.IntRange(1, 300).Draw(t, "limit")
	seen := max(at, base)
	for {
		segs, err := l.ReadAt(at, limit)
		if errors.Is(err, io.EOF) {
			if !m.finished {
				t.Fatalf("EOF before the end")
			}
			break
		}
		if err != nil {
			t.Fatalf("read at %d: %v", at, err)
		}
		if len(segs) == 0 {
			break
		}
		total := 0
		for _, s := range segs {
			for ; seen < s.Offset; seen++ {
				if m.stream[seen] != 0 {
					t.Fatalf("offset %d was left out", seen)
				}
			}
			end := s.Offset + uint64(len(s.Data))
			if s.Offset < at || end > m.next() || !bytes.Equal(s.Data, m.data[s.Offset:end]) {
				t.Fatalf("segment at %d of %d bytes differs", s.Offset, len(s.Data))
			}
			for i := s.Offset; i < end; i++ {
				if m.stream[i] != s.Stream {
					t.Fatalf("offset %d came as %s", i, s.Stream)
				}
			}
			seen, total = end, total+len(s.Data)
		}
		if total > limit {
			t.Fatalf("read %d bytes, limit was %d", total, limit)
		}
		at = seen
	}
	for ; seen < m.next(); seen++ {
		if m.stream[seen] != 0 {
			t.Fatalf("offset %d was not read", seen)
		}
	}
}

func TestLogIsItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "al")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		quota := rapid.SampledFrom([]int64{0, 1, 4 << 10, 64 << 10}).Draw(t, "quota")
		l, err := OpenLog(dir, "s", quota)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		m := &model{}
		add := func(s Stream, data []byte) {
			for _, b := range data {
				m.stream, m.data = append(m.stream, s), append(m.data, b)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				data := rapid.SliceOfN(rapid.Byte(), 0, 700).Draw(t, "data")
				stream := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
				back := min(rapid.Uint64Range(0, 50).Draw(t, "overlap"), m.next(), uint64(len(data)))
				copy(data, m.data[m.next()-back:])
				err := l.Append(stream, m.next()-back, data)
				fresh := data[back:]
				if m.finished && len(fresh) > 0 {
					if !errors.Is(err, ErrFinished) {
						t.Fatalf("append to a finished log: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				add(stream, fresh)
			},
			"hole": func(t *rapid.T) {
				if err := l.Append(Stdout, m.next()+1, []byte("x")); !errors.Is(err, ErrHole) {
					t.Fatalf("hole: %v", err)
				}
			},
			"gap": func(t *rapid.T) {
				to := m.next() + rapid.Uint64Range(0, 400).Draw(t, "gap")
				err := l.Gap(m.next()/2, to)
				if m.finished && to > m.next() {
					if !errors.Is(err, ErrFinished) {
						t.Fatalf("gap in a finished log: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				add(0, make([]byte, to-m.next()))
			},
			"sync": func(t *rapid.T) {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			},
			"finish": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				if err := l.Finish(); err != nil {
					t.Fatal(err)
				}
				m.finished = true
			},
			"reopen": func(t *rapid.T) {
				base := l.Base()
				_ = l.Close()
				if l, err = OpenLog(dir, "s", quota); err != nil {
					t.Fatal(err)
				}
				if l.Base() != base || l.Finished() != m.finished {
					t.Fatalf("base %d finished %v, want %d %v", l.Base(), l.Finished(), base, m.finished)
				}
			},
			"": func(t *rapid.T) { m.check(t, l) },
		})
	})
}
