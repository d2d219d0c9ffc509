package cell

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	cellv1 "github.com/airlock-host/airlock/proto/airlock/cell/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inputOf(n int) *cellv1.HostFrame {
	return &cellv1.HostFrame{Id: 7, Frame: &cellv1.HostFrame_Input{Input: &cellv1.Input{SessionId: "s", Data: bytes.Repeat([]byte{0xa7}, n)}}}
}

func TestCodecRoundTrip(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	enc := NewEncoder(&b)
	sizes := []int{0, 1, 100, keepBuffer - 50, keepBuffer, keepBuffer + 1, 3*keepBuffer + 17, 5 << 20, 3}
	for _, n := range sizes {
		if err := enc.Encode(inputOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	whole := b.Bytes()
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(whole), "in halves": iotest.HalfReader(bytes.NewReader(whole))} {
		dec := NewDecoder(r)
		for _, n := range sizes {
			var f cellv1.HostFrame
			if err := dec.Decode(&f); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !proto.Equal(&f, inputOf(n)) {
				t.Errorf("%s: another message of %d", name, n)
			}
		}
		if err := dec.Decode(&cellv1.HostFrame{}); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, cut := range []int{1, 3, 4, 5, 9} {
		err := NewDecoder(bytes.NewReader(whole[:cut])).Decode(&cellv1.HostFrame{})
		if cut != 4 && cut != 5 && cut != 9 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if err == nil {
			t.Errorf("cut at %d: no error", cut)
		}
	}
}

func TestCodecRefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := NewEncoder(&b).Encode(inputOf(MaxMessage)); err == nil || b.Len() != 0 {
		t.Errorf("error %v, %d bytes written", err, b.Len())
	}
	err := NewDecoder(bytes.NewReader([]byte{1, 0, 0, 1})).Decode(&cellv1.HostFrame{})
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

// A length alone must not cost memory.
func TestCodecAllocatesWhatHasCome(t *testing.T) {
	b := append([]byte{0, 0xff, 0xff, 0xff}, make([]byte, 10)...)
	got := testing.Benchmark(func(tb *testing.B) {
		tb.ReportAllocs()
		for range tb.N {
			_ = NewDecoder(bytes.NewReader(b)).Decode(&cellv1.HostFrame{})
		}
	})
	if n := got.AllocedBytesPerOp(); n > 2*keepBuffer {
		t.Errorf("%d bytes for a length of 16 MiB with 10 bytes behind it", n)
	}
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	_ = NewEncoder(&b).Encode(inputOf(3))
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		dec := NewDecoder(r)
		for {
			var m cellv1.HostFrame
			before := r.Len()
			if err := dec.Decode(&m); err != nil {
				return
			}
			if r.Len() >= before {
				t.Fatal("read nothing")
			}
			var again bytes.Buffer
			if err := NewEncoder(&again).Encode(&m); err != nil {
				t.Fatal(err)
			}
			var back cellv1.HostFrame
			if err := NewDecoder(&again).Decode(&back); err != nil || !proto.Equal(&m, &back) {
				t.Fatalf("not the same again: %v", err)
			}
		}
	})
}
