package result

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// pack writes the tar of a result.
type pack struct {
	f   *os.File
	buf *bufio.Writer
	gz  *gzip.Writer
	tar *tar.Writer
	mem []byte
}

func newPack(path string) (*pack, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &pack{f: f, buf: bufio.NewWriterSize(f, 256<<10), mem: make([]byte, 256<<10)}
	if p.gz, err = gzip.NewWriterLevel(p.buf, gzip.BestSpeed); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	p.tar = tar.NewWriter(p.gz)
	return p, nil
}

// header is a path's; owners are not kept, nor any bit beside permissions.
func header(e Entry) *tar.Header {
	h := &tar.Header{Name: e.Path, Mode: int64(e.Mode & 0o777), ModTime: time.Unix(0, e.Mtime)}
	switch e.Type {
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	return h
}

// entry writes a directory or a symlink.
func (p *pack) entry(e Entry) error { return p.tar.WriteHeader(header(e)) }

// file writes a regular file of the size that was seen; what is missing of it
// is filled with zeros, what has come since is left out.
func (p *pack) file(e Entry, r *os.File) (sum string, changed bool, err error) {
	if err := p.tar.WriteHeader(header(e)); err != nil {
		return "", false, err
	}
	h := sha256.New()
	w := io.MultiWriter(p.tar, h)
	n, rerr := io.CopyBuffer(writerOnly{w}, io.LimitReader(r, e.Size), p.mem)
	if n < e.Size {
		// A writer that is broken (a full disk) fails here again.
		if _, err := io.CopyN(w, zeros{}, e.Size-n); err != nil {
			return "", false, fmt.Errorf("%s: %w", e.Path, errors.Join(rerr, err))
		}
		changed = true
	} else if st, err := r.Stat(); err == nil {
		changed = st.Size() != e.Size || st.ModTime().UnixNano() != e.Mtime
	}
	return hex.EncodeToString(h.Sum(nil)), changed, nil
}

func (p *pack) close() error {
	err := errors.Join(p.tar.Close(), p.gz.Close(), p.buf.Flush(), p.f.Sync(), p.f.Close())
	p.f = nil
	return err
}

func (p *pack) abandon() {
	if p.f != nil {
		_ = p.f.Close()
	}
}

// writerOnly keeps io.Copy from going around the buffer.
type writerOnly struct{ io.Writer }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
