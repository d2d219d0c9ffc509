package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/airlock-host/airlock/host/internal/governance"
)

func TestArgumentsThatWaitAreSealed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pending")
	s, err := newSealed(dir, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	const secret = `{"user":"ann","password":"in-the-clear"}`
	for _, id := range []string{"d1", "d2", "d3"} {
		if err := s.put("a/../task", id, []byte(secret)); err != nil {
			t.Fatal(err)
		}
	}
	again, err := newSealed(dir, bytes.Repeat([]byte{7}, 32)) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := again.get("a/../task", "d1"); !ok || string(got) != secret {
		t.Fatalf("%s, %v", got, ok)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(again.path("a/../task", "d1"))
	if err != nil || bytes.Contains(text, []byte("in-the-clear")) || bytes.Contains(text, []byte("ann")) {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// It opens with its key, for its decision, and whole.
	other, err := newSealed(dir, bytes.Repeat([]byte{8}, 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := other.get("a/../task", "d1"); ok {
		t.Error("another key opens it")
	}
	if err := os.WriteFile(again.path("a/../task", "d2"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.get("a/../task", "d2"); ok {
		t.Error("it opens as another decision's")
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(again.path("a/../task", "d1"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.get("a/../task", "d1"); ok {
		t.Error("it opens although a bit is another")
	}
	waits := &governance.Task{Decisions: []governance.Decision{{ID: "d3", Outcome: governance.Pause}, {ID: "d2", Outcome: governance.Pause, Consumed: true}}}
	if err := again.sweep(map[string]*governance.Task{"a/../task": waits}); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) != 1 || left[0] != again.path("a/../task", "d3") {
		t.Errorf("left after the sweep: %v", left)
	}
	if err := again.drop("a/../task", "d3"); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.get("a/../task", "d3"); ok {
		t.Error("it is there after it was dropped")
	}
	if err := again.dropTask("a/../task"); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	var none sealed // no key: memory only
	if err := none.put("t", "d", []byte("{}")); err != nil {
		t.Error(err)
	}
	if _, ok := none.get("t", "d"); ok {
		t.Error("kept without a key")
	}
}
