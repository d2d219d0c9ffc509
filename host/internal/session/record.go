package session

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A segment file is a header and then records, all little-endian:
//
//	header: magic [8] | base u64 | crc32c of both u32 | zero u32
//	record: len u32 | kind u8 | zero [3] | offset u64 | crc32c u32 | data [len]
//
// A record's checksum covers its header and its data, so one fdatasync makes
// output safe and a torn tail shows itself when the file is opened again.
const (
	magic      = "ALSLOG1\n"
	headerSize = 24
	recordHead = 20
	// maxRecord bounds the data of one record; longer output is split.
	maxRecord = 64 << 10
)

// Kinds of records beside the streams' own numbers.
const (
	kindGap    = 0x10 // data: u64, the first offset behind the gap
	kindFinish = 0x11 // no data: there is no more output
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func putHeader(base uint64) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint64(b[8:], base)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
	return b
}

func parseHeader(b []byte) (base uint64, ok bool) {
	if len(b) < headerSize || string(b[:8]) != magic {
		return 0, false
	}
	if binary.LittleEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], castagnoli) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[8:]), true
}

// record is a record's header.
type record struct {
	size   uint32
	kind   uint8
	offset uint64
	sum    uint32
}

func parseRecord(b []byte) (record, error) {
	r := record{
		size:   binary.LittleEndian.Uint32(b),
		kind:   b[4],
		offset: binary.LittleEndian.Uint64(b[8:]),
		sum:    binary.LittleEndian.Uint32(b[16:]),
	}
	if r.size > maxRecord {
		return r, fmt.Errorf("record of %d bytes", r.size)
	}
	switch r.kind {
	case uint8(Stdout), uint8(Stderr):
	case kindGap:
		if r.size != 8 {
			return r, fmt.Errorf("gap record of %d bytes", r.size)
		}
	case kindFinish:
		if r.size != 0 {
			return r, fmt.Errorf("finish record of %d bytes", r.size)
		}
	default:
		return r, fmt.Errorf("record of unknown kind %d", r.kind)
	}
	return r, nil
}

// appendRecord appends a whole record to b.
func appendRecord(b []byte, kind uint8, offset uint64, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data))) //nolint:gosec // at most maxRecord
	b = append(b, kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, offset)
	sum := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, data)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, data...)
}

// whole says whether a record's checksum fits its header and data.
func whole(head, data []byte) bool {
	sum := crc32.Update(crc32.Checksum(head[:16], castagnoli), castagnoli, data)
	return binary.LittleEndian.Uint32(head[16:]) == sum
}
