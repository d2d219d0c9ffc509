package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type entry struct {
	name, link, body string
	kind             byte
	mode             int64
}

func tarOf(t *testing.T, packed bool, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.body)), Uid: os.Getuid(), Gid: os.Getgid()}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !packed {
		return b.Bytes()
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	_, _ = g.Write(b.Bytes())
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func TestLayersLieOverEachOther(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tree")
	layers := [][]byte{
		tarOf(t, false, entry{name: "a/one", body: "1"}, entry{name: "a/two", body: "2"}, entry{name: "b/old", body: "o"},
			entry{name: "s", link: "a", kind: tar.TypeSymlink}, entry{name: "prog", body: "x", mode: 0o4755}),
		tarOf(t, true, entry{name: "a/.wh.one"}, entry{name: "b/new", body: "n"}, entry{name: "b/.wh..wh..opq"},
			entry{name: "dev/sda", kind: tar.TypeBlock}, entry{name: "h", link: "a/two", kind: tar.TypeLink}),
	}
	for _, l := range layers {
		if err := extract(dir, bytes.NewReader(l)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"a/two": "2", "b/new": "n", "s/two": "2", "h": "2"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"a/one", "b/old", "dev/sda", "b/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "prog")); err != nil || st.Mode()&os.ModeSetuid == 0 {
		t.Errorf("the setuid bit of an image's program is lost: %v, %v", st, err)
	}
}

func TestNothingIsWrittenOutside(t *testing.T) {
	t.Parallel()
	for what, entries := range map[string][]entry{
		"a name with dots":     {{name: "../../evil", body: "x"}},
		"an absolute name":     {{name: "/evil", body: "x"}},
		"through a link up":    {{name: "up", link: "../..", kind: tar.TypeSymlink}, {name: "up/evil", body: "x"}},
		"through a link to /":  {{name: "r", link: "/", kind: tar.TypeSymlink}, {name: "r/evil", body: "x"}},
		"by a hard link":       {{name: "h", link: "../../secret", kind: tar.TypeLink}},
		"a whiteout with dots": {{name: "../.wh.secret"}},
		"a link as the file":   {{name: "f", link: "../../secret", kind: tar.TypeSymlink}, {name: "f", body: "x"}},
		"an opaque link":       {{name: "o", link: "../..", kind: tar.TypeSymlink}, {name: "o/.wh..wh..opq"}},
	} {
		top := t.TempDir()
		if err := os.WriteFile(filepath.Join(top, "secret"), []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(top, "x", "tree")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = extract(dir, bytes.NewReader(tarOf(t, false, entries...))) // refused or made harmless
		if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil || string(b) != "s" {
			t.Errorf("%s: a file outside is %q, %v", what, b, err)
		}
		found, _ := os.ReadDir(top)
		if _, err := os.Lstat("/evil"); err == nil || len(found) != 2 {
			t.Errorf("%s: %v lies outside", what, found)
		}
	}
}

func TestDockerArchiveAndOCILayout(t *testing.T) {
	t.Parallel()
	layer := tarOf(t, true, entry{name: "etc/name", body: "layer"})
	config := []byte(`{"architecture":"amd64","config":{"Entrypoint":["/x"],"Env":["A=1"],"User":"7"}}`)
	docker := tarOf(t, false, entry{name: "manifest.json", body: `[{"Config":"c.json","Layers":["l.tar"]}]`},
		entry{name: "c.json", body: string(config)}, entry{name: "l.tar", body: string(layer)})
	manifest, _ := json.Marshal(map[string]any{
		"config": map[string]string{"digest": "sha256:" + sum(config)}, "layers": []map[string]string{{"digest": "sha256:" + sum(layer)}},
	})
	index, _ := json.Marshal(map[string]any{"manifests": []map[string]string{{"digest": "sha256:" + sum(manifest)}}})
	blob := func(b []byte) entry { return entry{name: "blobs/sha256/" + sum(b), body: string(b)} }
	oci := tarOf(t, false, entry{name: "oci-layout", body: "{}"}, entry{name: "index.json", body: string(index)},
		blob(manifest), blob(config), blob(layer))
	for kind, archive := range map[string][]byte{"docker-archive": docker, "oci-layout": oci} {
		dir := t.TempDir()
		file := filepath.Join(dir, "a.tar")
		if err := os.WriteFile(file, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		tree, r, done, err := open(dir, file)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if b, err := os.ReadFile(filepath.Join(tree, "etc", "name")); err != nil || string(b) != "layer" || r.Source != kind || r.User != "7" {
			t.Errorf("%s: %q, %v, %+v", kind, b, err, r)
		}
		done()
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s leaves %v", kind, left)
		}
	}
	damaged := bytes.Replace(oci, []byte(`"User":"7"`), []byte(`"User":"8"`), 1)
	file := filepath.Join(t.TempDir(), "d.tar")
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := open(filepath.Dir(file), file); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged blob: %v", err)
	}
}

// lz4Of packs as literals and one overlapping copy, by hand.
func TestLZ4(t *testing.T) {
	t.Parallel()
	// "abcd", then 12 bytes from 4 back, then the literal "end".
	block := []byte{0x48, 'a', 'b', 'c', 'd', 4, 0, 0x30, 'e', 'n', 'd'}
	frame := binary.LittleEndian.AppendUint32(nil, lz4Legacy)
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(block)))
	frame = append(append(frame, block...), 19, 0, 0, 0) // the unpacked size behind it
	got, err := unlz4(frame, 1<<20)
	if err != nil || string(got) != "abcdabcdabcdabcdend" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := unlz4(frame, 8); err == nil {
		t.Error("more than the limit is unpacked")
	}
	for i := range block {
		bad := bytes.Clone(block)
		bad[i] ^= 0xff
		_, _ = lz4Append(nil, bad, 1<<16) // must not panic
		_, _ = lz4Append(nil, block[:i], 1<<16)
	}
}

func FuzzLZ4(f *testing.F) {
	f.Add([]byte{0x48, 'a', 'b', 'c', 'd', 4, 0, 0x30, 'e', 'n', 'd'})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		if out, err := lz4Append(nil, b, limit); err == nil && len(out) > limit {
			t.Errorf("%d bytes", len(out))
		}
	})
}

func TestModulesComeInLoadOrder(t *testing.T) {
	t.Parallel()
	needs := map[string][]string{
		"virtio_pci": {"virtio", "virtio_ring"}, "virtio": {"virtio_ring"}, "virtio_ring": nil, "virtio_console": {"virtio"},
		"virtio_blk": {"virtio"}, "overlay": nil, "fuse": nil,
	}
	find := func(name string) (*module, error) {
		if n, ok := needs[name]; ok {
			return &module{name: name, needs: n}, nil
		}
		if name == "ext4" {
			return nil, nil // built in
		}
		return nil, errors.New("no " + name)
	}
	got, err := order(find)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, m := range got {
		at[m.name] = i + 1
	}
	for name, list := range needs {
		for _, n := range list {
			if at[n] == 0 || at[n] > at[name] {
				t.Errorf("%s comes after %s", n, name)
			}
		}
	}
	if at["virtio_net"] != 0 || got[at["fuse"]-1].group != "share" {
		t.Errorf("the order is %v", at)
	}
	delete(needs, "virtio_blk")
	if _, err := order(find); err == nil {
		t.Error("a kernel without virtio_blk is taken")
	}
	needs["virtio_ring"] = []string{"virtio_pci"}
	if _, err := order(find); err == nil {
		t.Error("a circle is taken")
	}
}
