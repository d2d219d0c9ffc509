package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// stride is how many bytes of file lie between two marks of the sparse index.
const stride = 32 << 10

// mark says where in the file a record begins that holds an offset.
type mark struct {
	offset uint64
	pos    int64
}

// segment is one file of a log. Its lock is the log's.
type segment struct {
	file file
	slot int
	base uint64
	end  uint64 // offset behind the last byte
	size int64  // of the file, whole records only

	synced    int64  // of size, what is known to be on disk
	syncedEnd uint64 // end, as far as that goes
	marks     []mark // sparse, by offset; the first one is the first record

	dirty    bool // there may be something that is not on disk
	torn     bool // when it was opened, something that is not whole followed
	finished bool // its last record ends the session
}

// create makes a new segment file in place of whatever had its name.
func create(path string, slot int, base uint64) (*segment, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(putHeader(base), 0); err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return &segment{file: dataFile{f}, slot: slot, base: base, end: base, size: headerSize, syncedEnd: base}, nil
}

// open reads an existing segment up to its first record that is not whole. A
// nil segment without an error is a file that never got its header.
func open(path string, slot int) (s *segment, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if s == nil {
			_ = f.Close()
		}
	}()
	in := bufio.NewReaderSize(f, 256<<10)
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(in, head); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	base, ok := parseHeader(head)
	if !ok {
		return nil, nil
	}
	seg := &segment{file: dataFile{f}, slot: slot, base: base, end: base, size: headerSize}
	data := make([]byte, maxRecord)
	for {
		kind, body, err := nextRecord(in, seg.end, data)
		switch {
		case err == nil:
			seg.note(kind, body)
			continue
		case errors.Is(err, errTorn):
			seg.torn = true
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		seg.synced, seg.syncedEnd = seg.size, seg.end
		return seg, nil
	}
}

// errTorn says that what follows is not a whole record.
var errTorn = errors.New("torn record")

// nextRecord reads a record that must begin at offset end. io.EOF says that
// the file ends cleanly.
func nextRecord(in io.Reader, end uint64, data []byte) (kind uint8, body []byte, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errTorn
		}
		return 0, nil, err
	}
	r, err := parseRecord(head[:])
	if err != nil || r.offset != end {
		return 0, nil, errTorn
	}
	body = data[:r.size]
	if _, err := io.ReadFull(in, body); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errTorn
		}
		return 0, nil, err
	}
	if !whole(head[:], body) {
		return 0, nil, errTorn
	}
	return r.kind, body, nil
}

// note counts a record that now ends the file.
func (s *segment) note(kind uint8, data []byte) {
	if n := len(s.marks); n == 0 || s.size-s.marks[n-1].pos >= stride {
		s.marks = append(s.marks, mark{s.end, s.size})
	}
	switch kind {
	case kindGap:
		s.end = binary.LittleEndian.Uint64(data)
	case kindFinish:
		s.finished = true
	default:
		s.end += uint64(len(data))
	}
	s.size += int64(recordHead + len(data))
	s.dirty = true
}

// read appends what the segment holds from offset on to out, at most max bytes
// of data; it gives the new out and how much data was added.
func (s *segment) read(out []Segment, offset uint64, limit int) ([]Segment, int, error) {
	if len(s.marks) == 0 {
		return out, 0, nil
	}
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].offset > offset })
	pos := s.marks[max(i-1, 0)].pos
	got := 0
	var head [recordHead]byte
	for pos < s.size && got < limit {
		if _, err := s.file.ReadAt(head[:], pos); err != nil {
			return out, got, s.readError(pos, err)
		}
		r, err := parseRecord(head[:])
		if err != nil {
			return out, got, fmt.Errorf("%s at %d is damaged: %w", s.file.Name(), pos, err)
		}
		body := pos + recordHead
		pos = body + int64(r.size)
		if r.kind >= kindGap || r.offset+uint64(r.size) <= offset {
			continue
		}
		var skip uint64
		if offset > r.offset {
			skip = offset - r.offset
		}
		n := min(int(r.size)-int(skip), limit-got)                                 //nolint:gosec // skip is less than size
		out, err = s.fill(out, Stream(r.kind), r.offset+skip, body+int64(skip), n) //nolint:gosec // bounded by size
		if err != nil {
			return out, got, err
		}
		got += n
	}
	return out, got, nil
}

// fill reads n bytes at pos into the last segment of out when they continue it,
// else into a new one.
func (s *segment) fill(out []Segment, stream Stream, offset uint64, pos int64, n int) ([]Segment, error) {
	if k := len(out) - 1; k < 0 || out[k].Stream != stream || out[k].Offset+uint64(len(out[k].Data)) != offset {
		out = append(out, Segment{Stream: stream, Offset: offset})
	}
	last := &out[len(out)-1]
	at := len(last.Data)
	last.Data = append(last.Data, make([]byte, n)...)
	if _, err := s.file.ReadAt(last.Data[at:], pos); err != nil {
		return out, s.readError(pos, err)
	}
	return out, nil
}

// readError never is io.EOF: to a reader that means the end of the session.
func (s *segment) readError(pos int64, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at %d: %w", s.file.Name(), pos, err)
}
