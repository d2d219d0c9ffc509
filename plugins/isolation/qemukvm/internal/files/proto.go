package files

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Operations of FUSE that are served; the numbers are linux/fuse.h's.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opReadlink    = 5
	opSymlink     = 6
	opMknod       = 8
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opLink        = 13
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43
	opRename2     = 45
	opLseek       = 46
)

const (
	headerIn  = 40
	headerOut = 16
	// maxWrite is the largest read or write.
	maxWrite   = 128 << 10
	maxRequest = maxWrite + 8<<10
)

// request is one message of the guest's kernel.
type request struct {
	op     uint32
	unique uint64
	node   uint64
	body   []byte
}

// u32 and u64 read a field of the body; what is missing reads as zero.
func (r *request) u32(at int) uint32 {
	if at+4 > len(r.body) {
		return 0
	}
	return binary.LittleEndian.Uint32(r.body[at:])
}

func (r *request) u64(at int) uint64 {
	if at+8 > len(r.body) {
		return 0
	}
	return binary.LittleEndian.Uint64(r.body[at:])
}

// names reads n strings, each ended by a zero byte, from an offset on.
func (r *request) names(at, n int) ([]string, unix.Errno) {
	out := make([]string, 0, n)
	b := r.body[min(at, len(r.body)):]
	for range n {
		end := 0
		for end < len(b) && b[end] != 0 {
			end++
		}
		if end == len(b) {
			return nil, unix.EINVAL
		}
		out = append(out, string(b[:end]))
		b = b[end+1:]
	}
	return out, 0
}

// answer is built up field by field.
type answer struct{ b []byte }

func (a *answer) u16(v ...uint16) {
	for _, x := range v {
		a.b = binary.LittleEndian.AppendUint16(a.b, x)
	}
}

func (a *answer) u32(v ...uint32) {
	for _, x := range v {
		a.b = binary.LittleEndian.AppendUint32(a.b, x)
	}
}

func (a *answer) u64(v ...uint64) {
	for _, x := range v {
		a.b = binary.LittleEndian.AppendUint64(a.b, x)
	}
}

// attrValid is how long the guest may believe an attribute or a name: the host
// and other cells write to the same files.
const attrValid = 50e6 // nanoseconds

func (a *answer) attr(st *unix.Stat_t) {
	a.u64(st.Ino, uint64(st.Size), uint64(st.Blocks), uint64(st.Atim.Sec), uint64(st.Mtim.Sec), uint64(st.Ctim.Sec))
	a.u32(uint32(st.Atim.Nsec), uint32(st.Mtim.Nsec), uint32(st.Ctim.Nsec), st.Mode, uint32(st.Nlink), st.Uid, st.Gid,
		uint32(st.Rdev), uint32(st.Blksize), 0)
}

func (a *answer) attrOut(st *unix.Stat_t) {
	a.u64(0)
	a.u32(attrValid, 0)
	a.attr(st)
}

func (a *answer) entry(id uint64, st *unix.Stat_t) {
	a.u64(id, 0, 0, 0)
	a.u32(attrValid, attrValid)
	a.attr(st)
}
