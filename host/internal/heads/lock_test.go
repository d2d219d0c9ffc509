package heads

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestASecondHostOnTheSameFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := LoadOrCreateKey(filepath.Join(dir, "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "heads.jsonl")
	first, err := Open(Options{File: file, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{File: file, Key: key}); err == nil || !strings.Contains(err.Error(), "writes these heads") {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{File: file, Key: key})
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
