package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
)

// thousand is a journal of 1,000 events as it is exported, with the head after
// each line.
type thousand struct {
	text  []byte
	from  []int // where line i begins; one more for the end
	heads []Head
}

func newThousand(t *testing.T) *thousand {
	t.Helper()
	events := chainOf("mission/ü", 1000)
	j := &thousand{text: export(t, events), heads: []Head{Genesis("mission/ü", testUUID)}}
	for i := range events {
		j.from = append(j.from, len(j.text))
		if i == 0 {
			j.from[0] = 0
		} else {
			j.from[i] = j.from[i-1] + bytes.IndexByte(j.text[j.from[i-1]:], '\n') + 1
		}
		j.heads = append(j.heads, *headOf(events, i+1))
	}
	j.from = append(j.from, len(j.text))
	return j
}

func (j *thousand) line(i int) []byte { return j.text[j.from[i]:j.from[i+1]] }

// prober verifies what follows a good beginning. The beginning is verified once
// and for all: Verify is a fold over the lines, so that what it says of a later
// line depends on the head before and on what follows, and on nothing else.
// TestDamageIsFoundByVerifyToo holds the two together.
type prober struct {
	j  *thousand
	rd *Reader
}

func (j *thousand) prober() *prober { return &prober{j: j, rd: NewReader(nil)} }

// fault verifies the tail that follows the first n lines and gives what is wrong
// with the line behind them; nil when that line is good or the damage is said of
// another one.
func (p *prober) fault(n int, trusted *Head, tail ...[]byte) *ChainError {
	p.rd.r.Reset(bytes.NewReader(bytes.Join(tail, nil)))
	p.rd.line, p.rd.offset, p.rd.next = 0, 0, 0
	c := ResumeChain(p.j.heads[n], trusted)
	if n == 0 {
		c = NewChain(trusted)
	}
	_, err := verify(p.rd, c)
	var ce *ChainError
	if !errors.As(err, &ce) || ce.Line > 1 || ce.Sequence != uint64(n+1) {
		return nil
	}
	return ce
}

// side runs do for every line, on all processors.
func side(do func(p *prober, i int), j *thousand) {
	var wg sync.WaitGroup
	lines := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			p := j.prober()
			for i := range lines {
				do(p, i)
			}
		})
	}
	for i := range 1000 {
		lines <- i
	}
	close(lines)
	wg.Wait()
}

// TestEveryBitOfAThousandEvents flips bits of a journal of 1,000 events, one at
// a time: each is found at its line and sequence. With AIRLOCK_FULL=1 (make
// crash) it is every bit there is; else every bit of some lines and a bit of
// every 32nd byte of the others.
func TestEveryBitOfAThousandEvents(t *testing.T) {
	t.Parallel()
	j := newThousand(t)
	full := os.Getenv("AIRLOCK_FULL") == "1"
	var mu sync.Mutex
	flips := 0
	side(func(p *prober, i int) {
		line, next, n := bytes.Clone(j.line(i)), []byte(nil), 0
		if i < 999 {
			next = j.line(i + 1)
		}
		whole := full || i == 0 || i == 499 || i == 999
		for k := range line {
			for bit := range 8 {
				if !whole && (k%32 != i%32 || bit != (k/32+i)%8) {
					continue
				}
				line[k] ^= 1 << bit
				if p.fault(i, nil, line, next) == nil {
					t.Errorf("bit %d of byte %d of line %d is not found there: %q", bit, k, i+1, line)
				}
				line[k] ^= 1 << bit
				n++
			}
		}
		mu.Lock()
		flips += n
		mu.Unlock()
	}, j)
	if full && flips != 8*len(j.text) {
		t.Errorf("%d bits of %d", flips, 8*len(j.text))
	}
	t.Logf("%d single bits of %d events (%d bytes)", flips, 1000, len(j.text))
}

// TestEveryRecordOfAThousandEvents takes each record of a journal of 1,000
// events away, doubles it, swaps it with its neighbour and with any other, puts
// another journal's in its place, and cuts the journal before and inside of it.
func TestEveryRecordOfAThousandEvents(t *testing.T) {
	t.Parallel()
	j := newThousand(t)
	foreign := bytes.SplitAfter(export(t, chainOf("other", 1000)), []byte("\n"))
	last := j.heads[1000]
	side(func(p *prober, i int) {
		want := func(what string, ce *ChainError, faults ...Fault) {
			if ce == nil {
				t.Errorf("%s at line %d is not found there", what, i+1)
				return
			}
			for _, f := range faults {
				if ce.Fault == f {
					return
				}
			}
			t.Errorf("%s at line %d is told as %s: %v", what, i+1, ce.Fault, ce)
		}
		line := j.line(i)
		if i < 999 {
			next := j.line(i + 1)
			want("a record that is missing", p.fault(i, nil, next), FaultGap)
			want("two records that are swapped", p.fault(i, nil, next, line), FaultGap)
			other := i + 1 + rand.IntN(999-i)
			want(fmt.Sprint("a record swapped with line ", other+1), p.fault(i, nil, j.line(other), next), FaultGap)
		}
		want("a record of another task", p.fault(i, &last, foreign[i]), FaultForeignTask)
		cut := rand.IntN(len(line)-1) + 1
		want(fmt.Sprint("a record cut after byte ", cut), p.fault(i, nil, line[:cut]), FaultTorn)
		want("a journal that ends before its trusted head", p.fault(i, &last), FaultTruncated, FaultEmpty)
		// Twice, and an older one again: said of the place behind.
		if i > 0 {
			old := j.line(rand.IntN(i))
			if ce := p.fault(i, nil, old); ce == nil || ce.Fault != FaultReordered && ce.Fault != FaultDuplicate {
				t.Errorf("an older record at line %d: %v", i+1, ce)
			}
			want("a record that is doubled", p.fault(i, nil, j.line(i-1), line), FaultDuplicate)
		}
	}, j)
}

// TestDamageIsFoundByVerifyToo verifies the whole export for damage at random
// places: Verify says of it what is said when it begins before the place.
func TestDamageIsFoundByVerifyToo(t *testing.T) {
	t.Parallel()
	j, text := newThousand(t), []byte(nil)
	p := j.prober()
	for range 60 {
		text = append(text[:0], j.text...)
		at := rand.IntN(len(text))
		text[at] ^= 1 << rand.IntN(8)
		i := 0
		for j.from[i+1] <= at {
			i++
		}
		_, err := Verify(bytes.NewReader(text), nil)
		var ce *ChainError
		local := p.fault(i, nil, text[j.from[i]:])
		if !errors.As(err, &ce) || local == nil || ce.Line != i+1 || ce.Sequence != uint64(i+1) || ce.Offset != int64(j.from[i]) ||
			ce.Fault != local.Fault || ce.Detail != local.Detail {
			t.Errorf("byte %d (line %d): %v; by itself: %v", at, i+1, err, local)
		}
	}
}
