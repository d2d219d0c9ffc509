package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/store"
)

func TestASecondHostIsRefusedWithTheFirstOnesPid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	host := child(t, "hold", dir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("%q %v", line, err)
	}
	var locked store.ErrLocked
	_, err = store.Open(store.Options{Dir: filepath.Join(dir, "data")})
	if !errors.As(err, &locked) || locked.PID != host.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint("pid ", host.Process.Pid)) {
		t.Errorf("%v, want pid %d", err, host.Process.Pid)
	}
	if err := host.Process.Kill(); err != nil { // kill -9: the lock goes with the process
		t.Fatal(err)
	}
	_ = host.Wait()
	s := open(t, dir)
	if m, err := s.Mission(ctx, "held"); err != nil || m.State != "running" {
		t.Fatalf("%+v %v", m, err)
	}
}

func holdChild(dir string) error {
	s, err := store.Open(store.Options{Dir: filepath.Join(dir, "data"), Ballast: -1})
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, newWorkload("held").next(time.Now())); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

func TestASecondOpenInOneProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	var locked store.ErrLocked
	if _, err := store.Open(store.Options{Dir: filepath.Join(dir, "data")}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("%v", err)
	}
	closeStore(t, s)
	open(t, dir)
}

// TestADeletedLockLetsNobodyIn: the directory is taken, not the file in it. The
// first host goes on; the second is refused.
func TestADeletedLockLetsNobodyIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Remove(filepath.Join(dir, "data", "lock")); err != nil {
		t.Fatal(err)
	}
	var locked store.ErrLocked
	if _, err := store.Open(store.Options{Dir: filepath.Join(dir, "data")}); !errors.As(err, &locked) {
		t.Fatalf("a second host on the data directory: %v", err)
	}
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
	if err := s.Commit(ctx, newWorkload("m").next(time.Now())); err != nil {
		t.Error(err)
	}
}

// TestADataDirectoryThatIsNotThereAnyMoreFailsClosed: what were committed to it
// would be found by nobody. A second host on the directory that was moved is
// refused too.
func TestADataDirectoryThatIsNotThereAnyMoreFailsClosed(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(data string) error{
		"moved away": func(data string) error { return os.Rename(data, data+".old") },
		"replaced": func(data string) error {
			return errors.Join(os.Rename(data, data+".old"), os.Mkdir(data, 0o700))
		},
		"the database deleted": func(data string) error { return os.Remove(filepath.Join(data, "missions.db")) },
		"the database replaced": func(data string) error {
			return os.Rename(filepath.Join(data, "lock"), filepath.Join(data, "missions.db"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			s := open(t, dir)
			if err := errors.Join(s.Commit(ctx, newWorkload("before").next(time.Now())), s.Healthy()); err != nil {
				t.Fatal(err)
			}
			if err := away(data); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := s.Commit(ctx, newWorkload("after").next(time.Now()))
				if !errors.Is(err, store.ErrPoisoned) || !strings.Contains(err.Error(), data) || !strings.Contains(err.Error(), "put the directory back") {
					t.Errorf("a commit: %v", err)
				}
			}
			if err := s.Healthy(); !errors.Is(err, store.ErrPoisoned) {
				t.Errorf("health: %v", err)
			}
			if _, err := os.Stat(data + ".old"); err == nil {
				var locked store.ErrLocked
				if _, err := store.Open(store.Options{Dir: data + ".old"}); !errors.As(err, &locked) {
					t.Errorf("a second host on the directory that was moved: %v", err)
				}
			}
		})
	}
}

func TestEveryFileIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, func(o *store.Options) { o.Ballast = 1 << 20; o.BlobOver = 10 })
	mission(t, s, "m", 2)
	n := 0
	err := filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
		n++
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || n < 8 {
		t.Fatalf("%d files, %v", n, err)
	}
	if info, err := os.Stat(filepath.Join(data, "ballast")); err != nil || info.Size() != 1<<20 {
		t.Fatalf("ballast: %v", err)
	}
}

func TestADirectoryWithAnyNameWorks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a?b=c&_pragma=journal_mode(off)", "per%41cent", "hash#tag", "ümläut space"} {
		dir := filepath.Join(t.TempDir(), name)
		s := open(t, dir)
		mission(t, s, "m", 1)
		if _, err := os.Stat(filepath.Join(dir, "data", "missions.db-wal")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestANewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, func(o *store.Options) {
		*o = o.WithMigrations(store.Schema1, store.Schema2, store.Schema3, "CREATE TABLE later (x)")
	})
	mission(t, s, "m", 1)
	closeStore(t, s)
	before, err := os.ReadFile(filepath.Join(dir, "data", "missions.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(store.Options{Dir: filepath.Join(dir, "data")})
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 4") {
		t.Fatalf("%v", err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "data", "missions.db"))
	if err != nil || string(before) != string(after) {
		t.Fatal("the file was changed")
	}
}

func TestAMigrationMakesACopyFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	w := mission(t, s, "m", 3)
	closeStore(t, s)
	s = open(t, dir, func(o *store.Options) {
		*o = o.WithMigrations(store.Schema1, store.Schema2, store.Schema3, "ALTER TABLE cells ADD COLUMN extra TEXT")
	})
	if err := s.VerifyTask(ctx, "m"); err != nil {
		t.Fatal(err)
	}
	commit(t, s, w.next(time.Now()))
	closeStore(t, s)
	copies, err := filepath.Glob(filepath.Join(dir, "data", "missions.db.v3.*"))
	if err != nil || len(copies) != 1 {
		t.Fatalf("%v %v", copies, err)
	}
	// The copy is a whole store of the older version.
	old := t.TempDir()
	if err := os.MkdirAll(filepath.Join(old, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copies[0], filepath.Join(old, "data", "missions.db")); err != nil {
		t.Fatal(err)
	}
	s = open(t, old)
	if got := allEvents(t, s, "m"); len(got) != 3 {
		t.Fatalf("%d events", len(got))
	}
}

func TestAMigrationThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	mission(t, s, "m", 1)
	closeStore(t, s)
	opts := store.Options{Dir: filepath.Join(dir, "data")}
	if _, err := store.Open(opts.WithMigrations(store.Schema1, store.Schema2, store.Schema3, "CREATE TABLE half (x); nonsense")); err == nil {
		t.Fatal("nonsense was taken")
	}
	s = open(t, dir)
	if err := s.VerifyTask(ctx, "m"); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"garbage":       strings.Repeat("garbage!", 1000),
		"broken header": "SQLite format 3\x00" + strings.Repeat("\x7f", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "data", "missions.db")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Open(store.Options{Dir: filepath.Dir(path)}); !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("%v", err)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != text {
				t.Fatal("the file was changed")
			}
		})
	}
}

func TestAnotherProgramsDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closeStore(t, open(t, dir))
	pragma(t, dir, "PRAGMA application_id = 7")
	if _, err := store.Open(store.Options{Dir: filepath.Join(dir, "data")}); !errors.Is(err, store.ErrSchema) {
		t.Fatalf("%v", err)
	}
}
