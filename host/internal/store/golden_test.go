package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/heads"
	"github.com/airlock-host/airlock/host/internal/journal"
	"github.com/airlock-host/airlock/host/internal/store"
	"github.com/airlock-host/airlock/host/internal/workflow"
)

// goldenEnv set: the newest golden directory is written anew. Only before the
// release that first ships its schema.
const goldenEnv = "AIRLOCK_UPDATE_GOLDEN"

// expected is what a golden directory must give.
type expected struct {
	Heads   []journal.Head
	Pending int
	Cells   int
	Work    string `json:",omitempty"` // the task that has a workflow
}

// TestStateOfEveryReleaseOpens keeps a directory for each schema version that
// was released (F15): each must open, verify against its heads and go on.
func TestStateOfEveryReleaseOpens(t *testing.T) {
	t.Parallel()
	if os.Getenv(goldenEnv) != "" {
		writeGolden(t, filepath.Join("testdata", "v3"))
	}
	dirs, err := filepath.Glob(filepath.Join("testdata", "v*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden directory: %v", err)
	}
	for _, golden := range dirs {
		t.Run(filepath.Base(golden), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(golden)); err != nil {
				t.Fatal(err)
			}
			var want expected
			b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
			if err == nil {
				err = json.Unmarshal(b, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			public, err := heads.LoadPublicKey(filepath.Join(dir, "host.key.pub"))
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			for _, head := range want.Heads {
				got, err := s.Head(ctx, head.TaskID)
				if err != nil || got != head {
					t.Fatalf("%+v, want %+v: %v", got, head, err)
				}
				if err := s.VerifyTask(ctx, head.TaskID); err != nil {
					t.Fatal(err)
				}
				trusted, ok, problems, err := heads.Find(filepath.Join(dir, "heads.jsonl"), public, head.TaskID)
				if err != nil || !ok || len(problems) > 0 || trusted != head {
					t.Fatalf("the signed head of %s: %+v %v %v %v", head.TaskID, trusted, ok, problems, err)
				}
			}
			stats(t, s, want.Pending, 0)
			if cells, err := s.Cells(ctx); err != nil || len(cells) != want.Cells {
				t.Fatalf("%d cells, %v", len(cells), err)
			}
			if want.Work != "" {
				checkGoldenWork(t, s, workflow.Owner(want.Work))
			}
			w := newWorkload(want.Heads[0].TaskID)
			w.head, w.n = want.Heads[0], 1000
			commit(t, s, w.next(time.Now()))
		})
	}
}

func writeGolden(t *testing.T, to string) {
	t.Helper()
	dir := t.TempDir()
	key, err := heads.LoadOrCreateKey(filepath.Join(dir, "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	log, err := heads.Open(heads.Options{File: filepath.Join(dir, "heads.jsonl"), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, withHeads(log), func(o *store.Options) { o.BlobOver = 2000 })
	var want expected
	for _, id := range []string{"running-1", "über/..", "done-1"} {
		w := mission(t, s, id, 4)
		b := w.with(journal.Question, `{"v":1,"prompt":"may I?"}`)
		b.Cells = []store.CellRow{{CellID: "cell-" + id, Incarnation: 1, MissionID: id, State: "bound"}}
		commit(t, s, b)
		want.Heads = append(want.Heads, w.head)
		want.Pending += 4
		want.Cells++
	}
	want.Work = "running-1"
	goldenWork(t, s, workflow.Owner(want.Work))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	b, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data/missions.db", "heads.jsonl", "host.key.pub"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "expected.json"), append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
