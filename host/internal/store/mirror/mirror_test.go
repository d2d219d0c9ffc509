package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(id, state string) Record {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC)
	return New(id, "do it", "tests pass", state, "pty-1", "", false, at, at)
}

func read(t *testing.T, dir string) map[string]map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheFileHasTheOlderKeysWordsAndMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := Start(dir, []Record{record("a/../b", "hitl-required"), record("over", "done")}, nil)
	m.Put(record("x", "running"))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	got := read(t, dir)
	if len(got) != 2 || got["a/../b"]["state"] != "hitl_required" || got["x"]["state"] != "running" {
		t.Fatalf("%v", got)
	}
	var keys []string
	for k := range got["x"] {
		keys = append(keys, k)
	}
	if len(keys) != 9 || got["x"]["checkpoint_id"] != nil || got["x"]["pty_session_id"] != "pty-1" || got["x"]["crash_loop"] != false || got["x"]["created_at"] != "2026-02-03T04:05:06.007Z" {
		t.Fatalf("%v", got["x"])
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
}

func TestAMissionThatIsOverLeavesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := Start(dir, []Record{record("a", "running"), record("b", "running"), record("c", "running")}, nil)
	m.Put(record("a", "failed"))
	m.Drop("b")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir); len(got) != 1 || got["c"] == nil {
		t.Fatalf("%v", got)
	}
}

func TestManyChangesAreFewWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := time.Now()
	m := Start(dir, nil, nil)
	for i := range 5000 {
		m.Put(record(fmt.Sprint("m", i%50), "running"))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if most := int(time.Since(begun)/interval) + 3; m.writes > most {
		t.Fatalf("%d writes, at most %d were allowed", m.writes, most)
	}
	if len(read(t, dir)) != 50 {
		t.Fatal("not all are there")
	}
}

func TestAWriteThatFailsIsSaidAndTriedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	m := Start(dir, []Record{record("a", "running")}, nil)
	wait(t, func() bool { return m.Err() != nil })
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.Put(record("b", "running"))
	wait(t, func() bool { return m.Err() == nil })
	if err := m.Close(); err != nil || len(read(t, dir)) != 2 {
		t.Fatal(err)
	}
}

func wait(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out")
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const legacy = `{
  "m-2": {"mission_id":"m-2","objective":"two","completion":"c","state":"running","pty_session_id":"p","checkpoint_id":null,"crash_loop":false,"created_at":"2025-11-02T10:00:00.123456789+00:00","updated_at":"2025-11-02T10:00:00Z","new_key":1},
  "m-1": {"mission_id":"m-1","objective":"one","completion":"c","state":"hitl_required","pty_session_id":null,"checkpoint_id":"cp","crash_loop":true,"created_at":"2025-11-01T10:00:00Z","updated_at":"2025-11-01T10:00:00Z"},
  "m-0": {"mission_id":"m-0","objective":"zero","completion":"c","state":"completed","created_at":"2025-11-01T09:00:00Z","updated_at":"2025-11-01T10:00:00Z"}
}`

func TestAnOlderSandboxIsImported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "identity", "0192f0c1-9b3a-7cc1-8a55-0242ac120002\n")
	write(t, dir, FileName, legacy)
	got, err := Import(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.InstanceID != "0192f0c1-9b3a-7cc1-8a55-0242ac120002" || len(got.Missions) != 2 || len(got.Notes) != 1 {
		t.Fatalf("%+v", got)
	}
	first := got.Missions[0]
	if first.MissionID != "m-1" || !first.CrashLoop || *first.CheckpointID != "cp" || first.PTYSessionID != nil || first.State != "hitl_required" {
		t.Fatalf("%+v", first)
	}
	// What the mirror writes can be imported again.
	again := t.TempDir()
	if err := Start(again, got.Missions, nil).Close(); err != nil {
		t.Fatal(err)
	}
	back, err := Import(again)
	if err != nil || !reflect.DeepEqual(back.Missions, got.Missions) {
		t.Fatalf("%+v\n%+v\n%v", back.Missions, got.Missions, err)
	}
}

func TestNothingToImportIsNoError(t *testing.T) {
	t.Parallel()
	got, err := Import(t.TempDir())
	if err != nil || got.InstanceID != "" || got.Missions != nil {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestAnIdentityThatIsNoUUIDIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"sandbox-1", "", "urn:uuid:0192f0c1-9b3a-7cc1-8a55-0242ac120002", "{0192f0c1-9b3a-7cc1-8a55-0242ac120002}"} {
		dir := t.TempDir()
		write(t, dir, "identity", id)
		got, err := Import(dir)
		if err != nil || got.InstanceID != "" || len(got.Notes) != 1 {
			t.Errorf("%q: %+v %v", id, got, err)
		}
	}
}

func TestAFileThatCannotBeReadStopsTheImportAndIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text         string
		line, column int
	}{
		"empty":              {"", 1, 1},
		"torn":               {"{\n  \"m\": {\"mission_id\":\"m\",", 2, 26},
		"bad token":          {"{\n  \"m\": {\"mission_id\": oops}\n}", 2, 23},
		"wrong type":         {"{\n  \"m\": {\"mission_id\":\"m\",\n \"state\": 5}\n}", 3, 11},
		"array":              {"[]", 1, 2},
		"text after":         {"{}\nx", 2, 1},
		"not UTF-8":          {"{\n\"m\xff\": {}}", 2, 3},
		"unknown state":      {"{\n  \"m\": {\"mission_id\":\"m\",\"state\":\"dancing\"}\n}", 2, 8},
		"another id":         {"{\n  \"m\":   {\"mission_id\":\"n\",\"state\":\"running\"}\n}", 2, 10},
		"mission twice":      {"{\"m\":{\"state\":\"running\"},\"m\":{\"state\":\"running\"}}", 1, 29},
		"mission no object":  {"{\"m\": null}", 1, 7},
		"bad creation time":  {"{\"m\": {\"state\":\"running\",\"created_at\":\"yesterday\"}}", 1, 7},
		"nul bytes (a hole)": {"\x00\x00\x00", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, FileName, c.text)
			_, err := Import(dir)
			var fe *FileError
			if !errors.As(err, &fe) || fe.Line != c.line || fe.Column != c.column {
				t.Fatalf("got %v, want line %d column %d", err, c.line, c.column)
			}
			if b, err := os.ReadFile(filepath.Join(dir, FileName)); err != nil || string(b) != c.text {
				t.Fatalf("the file was changed: %q %v", b, err)
			}
		})
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(legacy))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := parse(text)
		var at *placed
		if err != nil && (!errors.As(err, &at) || at.offset < 0 || at.offset > int64(len(text))) {
			t.Fatalf("%v", err)
		}
		for _, r := range records {
			if r.MissionID == "" {
				t.Fatal("a mission without an id")
			}
		}
	})
}
