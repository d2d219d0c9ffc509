package initrd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// read reads an archive as the kernel does: by the sizes in the headers.
func read(t *testing.T, b []byte) (out []Entry) {
	t.Helper()
	whole := b
	take := func(n int) []byte {
		if n > len(b) {
			t.Fatalf("the archive ends in an entry (%d of %d bytes are left)", len(b), n)
		}
		part := b[:n]
		b = b[n:]
		return part
	}
	pad := func() { take((len(b) - len(whole)) & 3) }
	for {
		head := take(110)
		if string(head[:6]) != "070701" {
			t.Fatalf("an entry begins with %q", head[:6])
		}
		var field [13]uint32
		for i := range field {
			v, err := strconv.ParseUint(string(head[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				t.Fatalf("field %d: %v", i, err)
			}
			field[i] = uint32(v)
		}
		name := take(int(field[11]))
		pad()
		data := bytes.Clone(take(int(field[6])))
		pad()
		if !bytes.HasSuffix(name, []byte{0}) {
			t.Fatalf("the name %q has no end", name)
		}
		e := Entry{Name: string(name[:len(name)-1]), Mode: field[1], Data: data, Major: field[9], Minor: field[10]}
		if e.Name == "TRAILER!!!" {
			if len(b) > 0 {
				t.Errorf("%d bytes come behind the end", len(b))
			}
			return out
		}
		if field[2] != 0 || field[3] != 0 || field[5] != 0 {
			t.Errorf("%s: uid %d, gid %d, time %d", e.Name, field[2], field[3], field[5])
		}
		if want := uint32(1); e.Mode&0o170000 == Dir && field[4] != want+1 || e.Mode&0o170000 != Dir && field[4] != want {
			t.Errorf("%s has %d links", e.Name, field[4])
		}
		if field[0] == 0 {
			t.Errorf("%s has no inode", e.Name)
		}
		out = append(out, e)
	}
}

func entries() []Entry {
	all := []Entry{
		{Name: "dev", Mode: Dir | 0o755},
		{Name: "dev/console", Mode: Char | 0o600, Major: 5, Minor: 1},
		{Name: "empty", Mode: File | 0o600},
	}
	for n := range 9 { // every remainder of the padding
		all = append(all, Entry{Name: "f" + strings.Repeat("x", n), Mode: File | 0o755, Data: bytes.Repeat([]byte{7}, n)})
	}
	return all
}

func TestAnArchiveIsReadBack(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := Write(&b, entries()); err != nil {
		t.Fatal(err)
	}
	got, want := read(t, b.Bytes()), entries()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Errorf("entry %d is %v, want %v", i, got[i], want[i])
		}
	}
	var again bytes.Buffer
	if err := Write(&again, entries()); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the same entries make another archive (%v)", err)
	}
}

var errFull = errors.New("full")

type short struct{ left int }

func (s *short) Write(p []byte) (int, error) {
	if len(p) > s.left {
		return 0, errFull
	}
	s.left -= len(p)
	return len(p), nil
}

var _ io.Writer = (*short)(nil)

func TestAFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := Write(&b, entries()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < b.Len(); n += 11 {
		if err := Write(&short{n}, entries()); !errors.Is(err, errFull) {
			t.Fatalf("with %d of %d bytes: %v", n, b.Len(), err)
		}
	}
}
