package image

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// lz4Legacy is the magic of the frame that the kernel's build makes.
const lz4Legacy = 0x184c2102

// lz4Block is how much a legacy block holds at most when it is unpacked.
const lz4Block = 8 << 20

var errLZ4 = errors.New("the LZ4 data is damaged")

// unlz4 unpacks a legacy LZ4 frame: magic, then blocks, each with its packed
// size in front. It ends where the next size makes no sense: the kernel's build
// puts the unpacked size behind the last block.
func unlz4(b []byte, limit int) ([]byte, error) {
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != lz4Legacy {
		return nil, errors.New("no LZ4 frame")
	}
	var out []byte
	for b = b[4:]; len(b) > 4; {
		n := int(binary.LittleEndian.Uint32(b))
		if n == lz4Legacy { // a concatenated frame
			b = b[4:]
			continue
		}
		if n == 0 || n > len(b)-4 {
			break
		}
		begun := len(out)
		var err error
		if out, err = lz4Append(out, b[4:4+n], min(limit, begun+lz4Block)); err != nil {
			return nil, err
		}
		b = b[4+n:]
		if len(out)-begun < lz4Block {
			break // only the last block is short
		}
	}
	return out, nil
}

// lz4Append unpacks one block behind out, which may grow to limit.
func lz4Append(out, b []byte, limit int) ([]byte, error) {
	first := len(out) // a block refers to nothing in front of it
	length := func(n int) (int, bool) {
		if n != 15 {
			return n, true
		}
		for len(b) > 0 {
			c := b[0]
			b = b[1:]
			if n += int(c); c != 255 {
				return n, n <= lz4Block
			}
		}
		return 0, false
	}
	for len(b) > 0 {
		token := b[0]
		b = b[1:]
		n, ok := length(int(token >> 4))
		if !ok || n > len(b) || len(out)+n > limit {
			return nil, errLZ4
		}
		out = append(out, b[:n]...)
		b = b[n:]
		if len(b) == 0 {
			return out, nil // the last sequence has literals only
		}
		if len(b) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		n, ok = length(int(token & 15))
		if n += 4; !ok || back == 0 || back > len(out)-first {
			return nil, errLZ4
		}
		if len(out)+n > limit {
			return nil, fmt.Errorf("%w: more than %d bytes", errLZ4, limit)
		}
		for n > 0 { // may overlap itself
			step := min(n, back)
			out = append(out, out[len(out)-back:len(out)-back+step]...)
			n -= step
		}
	}
	return out, nil
}
