package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func openTest(t *testing.T, dir string, quota int64) *Log {
	t.Helper()
	l, err := OpenLog(dir, "a/../b", quota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t *testing.T, l *Log, data string) {
	t.Helper()
	if err := l.Append(Stdout, l.Next(), []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// all reads everything from the base on.
func all(t *testing.T, l *Log) string {
	t.Helper()
	var out bytes.Buffer
	at := l.Base()
	for {
		segs, err := l.ReadAt(at, 0)
		if errors.Is(err, io.EOF) || err == nil && len(segs) == 0 {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segs {
			out.Write(s.Data)
			at = s.Offset + uint64(len(s.Data))
		}
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFilesArePrivateAndNamedByHash(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sessions")
	l := openTest(t, dir, 0)
	mustAppend(t, l, "x")
	names := files(t, dir)
	if len(names) != 1 || strings.Contains(names[0], "b.") || len(filepath.Base(names[0])) != 64+len(".0.log") {
		t.Fatalf("files = %v", names)
	}
	info, err := os.Stat(names[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode = %v, %v", info.Mode(), err)
	}
}

func TestTornTailIsCutAtEveryByte(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	l := openTest(t, src, 0)
	mustAppend(t, l, "acknowledged")
	whole, err := os.ReadFile(files(t, src)[0])
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "torn")
	name := filepath.Base(files(t, src)[0])
	grown, err := os.ReadFile(files(t, src)[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := len(whole); n < len(grown); n++ {
		for _, junk := range []string{"", "\x00\x00\x00\x00", strings.Repeat("\xff", 64)} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), append(grown[:n:n], junk...), 0o600); err != nil {
				t.Fatal(err)
			}
			l := openTest(t, dir, 0)
			if got := all(t, l); got != "acknowledged" {
				t.Fatalf("cut at %d with %q: %q", n, junk, got)
			}
			mustAppend(t, l, " and on")
			_ = l.Close()
			if got := all(t, openTest(t, dir, 0)); got != "acknowledged and on" {
				t.Fatalf("cut at %d, after reopening: %q", n, got)
			}
		}
	}
}

func TestDamageInTheMiddleIsAJumpNotALie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openTest(t, dir, 4<<10)
	for i := range 30 {
		mustAppend(t, l, strings.Repeat(fmt.Sprint(i%10), 100))
	}
	next := l.Next()
	oldest := l.segs[0]
	_ = l.Close()
	b, err := os.ReadFile(oldest.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(oldest.file.Name(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, dir, 4<<10)
	if l.Next() != next {
		t.Fatalf("next = %d, want %d: newer files are whole", l.Next(), next)
	}
	jumps := 0
	for at := l.Base(); ; {
		segs, err := l.ReadAt(at, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) == 0 {
			break
		}
		for _, s := range segs {
			if s.Offset != at {
				jumps++
			}
			for i, c := range s.Data {
				if want := byte('0' + (s.Offset+uint64(i))/100%10); c != want { //nolint:gosec // a digit
					t.Fatalf("offset %d is %q, want %q", s.Offset+uint64(i), c, want)
				}
			}
			at = s.Offset + uint64(len(s.Data))
		}
	}
	if jumps != 1 {
		t.Fatalf("%d jumps, want 1", jumps)
	}
}

func TestQuotaDropsTheOldest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const quota = 64 << 10
	l := openTest(t, dir, quota)
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for range 1000 {
		if err := l.Append(Stdout, l.Next(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	var size int64
	for _, f := range files(t, dir) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	held := l.Next() - l.Base()
	if size > quota || held < quota/2 || l.Next() != 1000*1024 {
		t.Fatalf("disk %d, held %d, next %d", size, held, l.Next())
	}
	segs, err := l.ReadAt(0, 0)
	if err != nil || segs[0].Offset != l.Base() {
		t.Fatalf("read of what is gone: %v %v", segs[0].Offset, err)
	}
}

// faulty fails writes or syncs when it is told to.
type faulty struct {
	file
	writeErr, syncErr error
	partial           int
}

func (f *faulty) WriteAt(b []byte, off int64) (int, error) {
	if f.writeErr != nil {
		n, _ := f.file.WriteAt(b[:min(f.partial, len(b))], off)
		return n, f.writeErr
	}
	return f.file.WriteAt(b, off)
}

func (f *faulty) Sync() error {
	if f.syncErr != nil {
		return f.syncErr
	}
	return f.file.Sync()
}

func TestFullDiskLosesNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openTest(t, dir, 0)
	mustAppend(t, l, "safe ")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	f := &faulty{file: l.last().file, writeErr: syscall.ENOSPC, partial: 22}
	l.last().file = f
	if err := l.Append(Stdout, 5, []byte("later")); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	if got := all(t, l); got != "safe " {
		t.Fatalf("after ENOSPC: %q", got)
	}
	f.writeErr = nil
	if err := l.Append(Stdout, 5, []byte("later")); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if got := all(t, openTest(t, dir, 0)); got != "safe later" {
		t.Fatalf("after reopening: %q", got)
	}
}

func TestFailedSyncPoisonsAndGoesBackToWhatIsSafe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openTest(t, dir, 0)
	mustAppend(t, l, "safe")
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, "lost")
	l.last().file = &faulty{file: l.last().file, syncErr: syscall.EIO}
	if err := l.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	if l.Next() != 4 {
		t.Fatalf("next = %d, want 4", l.Next())
	}
	l.last().file = l.last().file.(*faulty).file
	if err := l.Append(Stdout, 4, []byte("x")); !errors.Is(err, syscall.EIO) {
		t.Fatalf("append to a poisoned log: %v", err)
	}
	if err := l.Sync(); err == nil {
		t.Fatal("a poisoned log was synced")
	}
	_ = l.Close()
	l = openTest(t, dir, 0)
	if got := all(t, l); got != "safe" {
		t.Fatalf("after reopening: %q", got)
	}
	mustAppend(t, l, " again")
}

func TestWaitEndsForEveryReason(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(l *Log, cancel func())
		want error
	}{
		"output":   {func(l *Log, _ func()) { _ = l.Append(Stdout, 0, []byte("x")) }, nil},
		"gap":      {func(l *Log, _ func()) { _ = l.Gap(0, 9) }, nil},
		"finished": {func(l *Log, _ func()) { _ = l.Finish() }, nil},
		"closed":   {func(l *Log, _ func()) { _ = l.Close() }, ErrClosed},
		"context":  {func(_ *Log, cancel func()) { cancel() }, context.Canceled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openTest(t, t.TempDir(), 0)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			got := make(chan error, 1)
			go func() { got <- l.Wait(ctx, 0) }()
			tt.do(l, cancel)
			select {
			case err := <-got:
				if !errors.Is(err, tt.want) {
					t.Fatalf("wait = %v, want %v", err, tt.want)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("wait does not end")
			}
		})
	}
}

func TestFollowWaitsOutAGapAtTheEnd(t *testing.T) {
	t.Parallel()
	l := openTest(t, t.TempDir(), 0)
	if err := l.Gap(0, 10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if segs, err := l.Follow(ctx, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("follow of a gap = %v, %v", segs, err)
	}
	got := make(chan []Segment, 1)
	go func() {
		segs, _ := l.Follow(context.Background(), 0, 0)
		got <- segs
	}()
	mustAppend(t, l, "after")
	if segs := <-got; len(segs) != 1 || segs[0].Offset != 10 || string(segs[0].Data) != "after" {
		t.Fatalf("follow = %v", segs)
	}
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Follow(context.Background(), 15, 0); !errors.Is(err, io.EOF) {
		t.Fatalf("follow at the end = %v", err)
	}
}

func TestSixtyFourReadersSeeTheSameBytes(t *testing.T) {
	t.Parallel()
	l := openTest(t, t.TempDir(), 64<<20)
	var want bytes.Buffer
	var wg sync.WaitGroup
	results := make([]bytes.Buffer, 64)
	for i := range results {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var at uint64
			for {
				segs, err := l.ReadAt(at, 1000+i*100)
				if err != nil {
					return
				}
				for _, s := range segs {
					results[i].Write(s.Data)
					at = s.Offset + uint64(len(s.Data))
				}
				if len(segs) == 0 && l.Wait(context.Background(), at) != nil {
					return
				}
			}
		}()
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 300 {
		chunk := make([]byte, rng.IntN(5000))
		for i := range chunk {
			chunk[i] = byte(rng.Uint32())
		}
		if err := l.Append(Stream(1+rng.IntN(2)), l.Next(), chunk); err != nil { //nolint:gosec // 1 or 2
			t.Error(err)
		}
		want.Write(chunk)
		if rng.IntN(20) == 0 {
			if err := l.Sync(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := l.Finish(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for i := range results {
		if !bytes.Equal(results[i].Bytes(), want.Bytes()) {
			t.Fatalf("reader %d has %d bytes, want %d", i, results[i].Len(), want.Len())
		}
	}
}

func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sessions")
	l := openTest(t, dir, 4<<10)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		mustAppend(t, l, strings.Repeat("x", 200))
	}
	if len(files(t, dir)) == 0 {
		t.Fatal("no file was made again")
	}
}

func TestRemoveLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openTest(t, dir, 4<<10)
	for range 100 {
		mustAppend(t, l, strings.Repeat("x", 200))
	}
	_ = l.Close()
	if err := RemoveLog(dir, "a/../b"); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

func TestEndedSessionTakesNothing(t *testing.T) {
	t.Parallel()
	s := New("s", "m", nil, nil)
	ctx := context.Background()
	for name, err := range map[string]error{"input": s.Input(ctx, nil), "resize": s.Resize(ctx, 1, 1), "signal": s.Signal(ctx, 15)} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("%s = %v, want ErrEnded", name, err)
		}
	}
	if s.Alive() {
		t.Error("an ended session is alive")
	}
}

func BenchmarkAppendSync(b *testing.B) {
	l, err := OpenLog(b.TempDir(), "s", 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	data := bytes.Repeat([]byte("x"), 200)
	for b.Loop() {
		if err := l.Append(Stdout, l.Next(), data); err != nil {
			b.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
