package cell

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// MaxMessage is the size of the largest message, in bytes, without its length.
const MaxMessage = 16 << 20

// keepBuffer is the size up to which an Encoder or Decoder keeps its buffer:
// one large message must not cost its size for the rest of the connection.
const keepBuffer = 128 << 10

// Encoder writes messages, each as a four-byte big-endian length and its
// protobuf encoding, in one Write. It is not safe for concurrent use.
type Encoder struct {
	w   io.Writer
	buf []byte
}

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Encode writes one message. A message over MaxMessage is refused and nothing
// is written; after any other error the stream is unusable.
func (e *Encoder) Encode(m proto.Message) error {
	buf := append(e.buf[:0], 0, 0, 0, 0)
	buf, err := proto.MarshalOptions{}.MarshalAppend(buf, m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	n := len(buf) - 4
	if n > MaxMessage {
		return fmt.Errorf("message of %d bytes is over the limit of %d", n, MaxMessage)
	}
	binary.BigEndian.PutUint32(buf, uint32(n))
	if e.buf = nil; cap(buf) <= keepBuffer {
		e.buf = buf
	}
	if _, err := e.w.Write(buf); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// Decoder reads what an Encoder writes. It reads no byte beyond a message. It
// is not safe for concurrent use.
type Decoder struct {
	r   io.Reader
	buf []byte
}

// NewDecoder returns a Decoder that reads from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Decode reads one message into m. It returns io.EOF when the stream ends
// between two messages, and io.ErrUnexpectedEOF when it ends inside of one.
func (d *Decoder) Decode(m proto.Message) error {
	var head [4]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > MaxMessage {
		return fmt.Errorf("message of %d bytes is over the limit of %d", n, MaxMessage)
	}
	buf, err := d.body(n)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(buf, m); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// body reads n bytes, growing with what has really come: a length alone must
// not make the receiver allocate 16 MiB.
func (d *Decoder) body(n int) ([]byte, error) {
	buf := d.buf[:0]
	for len(buf) < n {
		step := min(n-len(buf), keepBuffer)
		if cap(buf)-len(buf) < step {
			grown := make([]byte, len(buf), min(n, max(2*cap(buf), len(buf)+step)))
			copy(grown, buf)
			buf = grown
		}
		at := len(buf)
		buf = buf[:at+step]
		if _, err := io.ReadFull(d.r, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	if d.buf = nil; cap(buf) <= keepBuffer {
		d.buf = buf
	}
	return buf, nil
}
