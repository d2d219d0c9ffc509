package heads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// slack is how many bytes beyond the compacted size are let in before the file
// is compacted again. Reading them back takes a few hundredths of a second.
const slack = 256 << 10

// endedFile is where the heads of ended tasks go.
func endedFile(path string) string { return path + ".ended" }

// file is the append-only file. Only the log's goroutine uses it.
type file struct {
	opts Options
	f    *os.File
	size int64 // of whole, durable records
	base int64 // size after the last compaction
	torn bool  // a write failed: what is beyond size must go before the next one
}

func openFile(opts Options, whole, size int64) (*file, error) {
	f, err := os.OpenFile(opts.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open heads: %w", err)
	}
	if size > whole {
		opts.Log.Warn("the last line of the file of signed heads is torn and was cut off: the host died while it wrote it", "file", opts.File, "bytes", size-whole)
	}
	out := &file{opts: opts, f: f, size: whole, torn: size > whole}
	if err := errors.Join(out.mend(), syncDir(filepath.Dir(opts.File))); err != nil {
		return nil, errors.Join(fmt.Errorf("open heads: %w", err), f.Close())
	}
	return out, nil
}

// append makes whole records durable or, on an error, leaves none of them.
func (f *file) append(text []byte) error {
	_ = f.opts.Hook.At(BeforeAppend)
	if err := f.mend(); err != nil {
		return err
	}
	f.torn = true
	if _, err := f.f.Write(text); err != nil {
		return err
	}
	_ = f.opts.Hook.At(BeforeSync)
	if err := unix.Fdatasync(int(f.f.Fd())); err != nil {
		// What the kernel did with the pages is not known: write them anew, into
		// a new file, rather than sync again and hope.
		return errors.Join(fmt.Errorf("sync heads: %w", err), f.rewrite())
	}
	f.torn = false
	f.size += int64(len(text))
	_ = f.opts.Hook.At(AfterSync)
	return nil
}

// mend cuts off what a failed write left.
func (f *file) mend() error {
	if !f.torn {
		return nil
	}
	if err := f.f.Truncate(f.size); err != nil {
		return err
	}
	f.torn = false
	return nil
}

// rewrite replaces the file by a new one with the durable part of the old one.
func (f *file) rewrite() error {
	text, err := os.ReadFile(f.opts.File)
	if err != nil {
		return err
	}
	return f.replace(text[:min(int64(len(text)), f.size)])
}

func (f *file) grown() bool { return f.size > f.base+max(f.base, slack) }

// compact appends to the file of ended tasks, then replaces the file. A crash
// in between leaves heads in both, which is harmless.
func (f *file) compact(ended, live []byte) error {
	_ = f.opts.Hook.At(BeforeCompact)
	if len(ended) > 0 {
		if err := appendSynced(endedFile(f.opts.File), ended); err != nil {
			return err
		}
	}
	_ = f.opts.Hook.At(AfterArchive)
	if err := f.replace(live); err != nil {
		return err
	}
	f.base = f.size
	_ = f.opts.Hook.At(AfterCompact)
	return nil
}

func (f *file) replace(text []byte) error {
	if err := renameio.WriteFile(f.opts.File, text, 0o600); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(f.opts.File)); err != nil {
		return err
	}
	next, err := os.OpenFile(f.opts.File, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	old := f.f
	f.f, f.size, f.torn = next, int64(len(text)), false
	return old.Close()
}

func (f *file) close() error { return f.f.Close() }

// appendSynced appends whole lines to a file and syncs it. A torn last line of
// an earlier crash is ended first, so that it stays one bad line.
func appendSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			err = f.Truncate(lastLine(f, info.Size()))
		}
	}
	if err == nil {
		_, err = f.Write(text)
	}
	return errors.Join(err, f.Sync(), f.Close(), syncDir(filepath.Dir(path)))
}

// lastLine is where the torn last line begins.
func lastLine(f *os.File, size int64) int64 {
	buf := make([]byte, 4096)
	for end := size; end > 0; {
		from := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-from], from)
		if err != nil && n == 0 {
			return size
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				return from + int64(i) + 1
			}
		}
		end = from
	}
	return 0
}
