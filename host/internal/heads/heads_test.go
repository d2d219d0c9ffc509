package heads

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		crashChild(dir, Point(os.Getenv(crashPointEnv)))
		return
	}
	goleak.VerifyTestMain(m)
}

func testKey(t testing.TB, dir string) Key {
	t.Helper()
	key, err := LoadOrCreateKey(filepath.Join(dir, "keys", "host.key"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func open(t testing.TB, dir string, key Key) *Log {
	t.Helper()
	l, err := Open(Options{File: file1(dir), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func file1(dir string) string { return filepath.Join(dir, "trusted", "heads.jsonl") }

func head(task string, seq uint64) journal.NewHead {
	h := journal.Genesis(task, "uuid-"+task)
	h.Sequence = seq
	h.Digest[0] = byte(seq)
	return journal.NewHead{Head: h}
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, l *Log) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAHeadIsTrustedAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	l := open(t, dir, key)
	l.Publish([]journal.NewHead{head("a", 1), head("b", 7)}, false)
	l.Publish([]journal.NewHead{head("a", 2)}, true)
	flush(t, l)
	if got, ok := l.Trusted("a"); !ok || got != head("a", 2).Head {
		t.Fatalf("%+v %v", got, ok)
	}
	closeLog(t, l)
	l = open(t, dir, testKey(t, dir))
	defer closeLog(t, l)
	for _, want := range []journal.NewHead{head("a", 2), head("b", 7)} {
		if got, ok := l.Trusted(want.TaskID); !ok || got != want.Head || l.Doubt(want.TaskID) != nil {
			t.Fatalf("%+v %v", got, ok)
		}
	}
	if _, ok := l.Trusted("c"); ok {
		t.Fatal("a head nobody published")
	}
}

func TestUrgentHeadsDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Open(Options{File: file1(dir), Key: testKey(t, dir), Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	l.Publish([]journal.NewHead{head("quiet", 1)}, false)
	if _, ok := l.Trusted("quiet"); ok {
		t.Fatal("signed at once")
	}
	l.Publish([]journal.NewHead{head("stop", 3)}, true)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, ok := l.Trusted("stop"); ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("an urgent head waits")
		}
	}
	if _, ok := l.Trusted("quiet"); !ok {
		t.Fatal("the others did not come along")
	}
	b, _ := os.ReadFile(file1(dir))
	if n := bytes.Count(b, []byte("\n")); n != 2 { // the file's beginning, and the batch
		t.Fatalf("%d signatures for one batch", n)
	}
}

func TestAnIntervalSignsTheRest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Open(Options{File: file1(dir), Key: testKey(t, dir), Interval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	for n := uint64(1); n < 4; n++ {
		l.Publish([]journal.NewHead{head("a", n)}, false)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if got, ok := l.Trusted("a"); ok && got.Sequence == n {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("head %d was not signed", n)
			}
		}
	}
}

func TestKeyAndFilesArePrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	l := open(t, dir, key)
	l.Publish([]journal.NewHead{head("a", 1)}, true)
	closeLog(t, l)
	path := filepath.Join(dir, "keys", "host.key")
	for name, mode := range map[string]os.FileMode{
		path: 0o400, path + ".pub": 0o444, filepath.Dir(path): 0o700,
		file1(dir): 0o600, filepath.Dir(file1(dir)): 0o700,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v", key, key, key); strings.Contains(s, fmt.Sprint([]byte(key.private)[0], " ", []byte(key.private)[1])) || s != strings.Repeat("key "+key.ID+" ", 3)[:3*len("key "+key.ID+" ")-1] {
		t.Errorf("a key is printed: %s", s)
	}
	if err := os.Chmod(path, 0o440); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKey(path); err == nil || !strings.Contains(err.Error(), "0440") {
		t.Fatalf("a key that others may read: %v", err)
	}
	public, err := LoadPublicKey(path + ".pub")
	if err != nil || public.ID != key.ID {
		t.Fatalf("%v %v", public, err)
	}
	if got, ok, problems, err := Find(file1(dir), public, "a"); err != nil || !ok || len(problems) != 0 || got != head("a", 1).Head {
		t.Fatalf("%+v %v %v %v", got, ok, problems, err)
	}
}

func TestAKeyThatIsDamagedIsNotReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "host.key")
	if err := os.WriteFile(path, []byte("garbage"), 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKey(path); err == nil {
		t.Fatal("accepted")
	}
	if b, _ := os.ReadFile(path); string(b) != "garbage" {
		t.Fatal("replaced")
	}
}

// lines rewrites the file of heads.
func lines(t *testing.T, dir string, change func([]string) []string) {
	t.Helper()
	b, err := os.ReadFile(file1(dir))
	if err != nil {
		t.Fatal(err)
	}
	out := strings.Join(change(strings.SplitAfter(strings.TrimSuffix(string(b), ""), "\n")), "")
	if err := os.WriteFile(file1(dir), []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
}

func written(t *testing.T) (dir string, key Key) {
	t.Helper()
	dir = t.TempDir()
	key = testKey(t, dir)
	l := open(t, dir, key)
	for _, h := range []journal.NewHead{head("a", 1), head("b", 1), head("a", 2)} {
		l.Publish([]journal.NewHead{h}, true)
		flush(t, l)
	}
	closeLog(t, l)
	return dir, key
}

func TestARecordThatWasChangedIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"sequence":  func(m map[string]any) { m["heads"].([]any)[0].(map[string]any)["sequence"] = 99 },
		"task":      func(m map[string]any) { m["heads"].([]any)[0].(map[string]any)["task_id"] = "b" },
		"ended":     func(m map[string]any) { m["heads"].([]any)[0].(map[string]any)["ended"] = true },
		"time":      func(m map[string]any) { m["ts"] = "2020-01-01T00:00:00.000Z" },
		"key":       func(m map[string]any) { m["key_id"] = "0000000000000000" },
		"signature": func(m map[string]any) { m["sig"] = "AAAA" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, key := written(t)
			var task string
			lines(t, dir, func(ls []string) []string {
				var m map[string]any
				if err := json.Unmarshal([]byte(ls[3]), &m); err != nil {
					t.Fatal(err)
				}
				change(m)
				task = m["heads"].([]any)[0].(map[string]any)["task_id"].(string)
				b, _ := json.Marshal(m)
				ls[3] = string(b) + "\n"
				return ls
			})
			for range 2 { // the doubt outlives a restart
				l := open(t, dir, key)
				p := l.Problems()
				_, _ = l.Trusted(task)
				if len(p) != 1 || p[0].Line != 4 || l.Doubt(task) == nil {
					t.Fatalf("problems %v, doubt %v", p, l.Doubt(task))
				}
				l.Publish([]journal.NewHead{head("c", 1)}, true)
				closeLog(t, l)
			}
		})
	}
}

func TestGarbageInTheMiddleIsAProblemAndAtTheEndIsCutOff(t *testing.T) {
	t.Parallel()
	dir, key := written(t)
	lines(t, dir, func(ls []string) []string { return []string{ls[0], "garbage\n", ls[1], ls[2], ls[2][:40]} })
	l := open(t, dir, key)
	if p := l.Problems(); len(p) != 1 || p[0].Line != 2 {
		t.Fatalf("%v", p)
	}
	l.Publish([]journal.NewHead{head("a", 3)}, true)
	closeLog(t, l)
	l = open(t, dir, key)
	defer closeLog(t, l)
	if got, _ := l.Trusted("a"); got.Sequence != 3 || len(l.Problems()) != 1 {
		t.Fatalf("%+v %v", got, l.Problems())
	}
}

func TestAnotherHostsKeyIsNotTrusted(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	other := testKey(t, t.TempDir())
	l := open(t, dir, other)
	defer closeLog(t, l)
	if _, ok := l.Trusted("a"); ok || l.Doubt("a") == nil || len(l.Problems()) != 4 {
		t.Fatalf("%v", l.Problems())
	}
}

func TestTheFileStaysSmallAndEndedTasksAreStillFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := testKey(t, dir)
	l := open(t, dir, key)
	const tasks = 1500
	for round := uint64(1); round <= 4; round++ {
		var hs []journal.NewHead
		for i := range tasks {
			h := head(fmt.Sprintf("task-%d", i), round)
			h.Ended = i%3 != 0 && round == 4
			hs = append(hs, h)
		}
		l.Publish(hs, true)
		flush(t, l)
	}
	for range 3 { // something must follow for the file to grow over its bound
		var hs []journal.NewHead
		for i := 0; i < tasks; i += 3 {
			hs = append(hs, head(fmt.Sprintf("task-%d", i), 9))
		}
		l.Publish(hs, true)
		flush(t, l)
	}
	l.mu.Lock()
	live := len(l.live)
	l.mu.Unlock()
	if live != tasks/3 {
		t.Fatalf("%d tasks in memory, %d are live", live, tasks/3)
	}
	info, err := os.Stat(file1(dir))
	if err != nil || info.Size() > 4*slack {
		t.Fatalf("%d bytes, %v", info.Size(), err)
	}
	closeLog(t, l)
	l = open(t, dir, key)
	defer closeLog(t, l)
	for i := range 30 {
		want := uint64(4)
		if i%3 == 0 {
			want = 9
		}
		task := fmt.Sprintf("task-%d", i)
		if got, ok := l.Trusted(task); !ok || got.Sequence != want || l.Doubt(task) != nil {
			t.Fatalf("%s: %+v %v %v", task, got, ok, l.Doubt(task))
		}
	}
}

func TestAWriteThatFailsIsSaidAndMadeUpFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := Open(Options{File: file1(dir), Key: testKey(t, dir), Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// The goroutine's file is replaced by one that cannot be written to.
	readOnly, err := os.Open(file1(dir))
	if err != nil {
		t.Fatal(err)
	}
	good := l.file.f
	l.file.f = readOnly
	l.Publish([]journal.NewHead{head("a", 1)}, true)
	wait(t, func() bool { return l.Err() != nil })
	if _, ok := l.Trusted("a"); ok {
		t.Fatal("trusted, but not written")
	}
	if err := l.Close(); err == nil {
		t.Fatal("the loss was not said at Close")
	}
	_ = good.Close()
	again := open(t, dir, testKey(t, dir))
	defer again.Close()
	again.Publish([]journal.NewHead{head("a", 2)}, true)
	flush(t, again)
	if got, _ := again.Trusted("a"); got.Sequence != 2 {
		t.Fatalf("%+v", got)
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

func FuzzParse(f *testing.F) {
	key := newKey(make([]byte, 64))
	rec := record.Sign(key.private, time.UnixMilli(0), []journal.NewHead{head("a", 1)})
	line, _ := rec.Line()
	f.Add(bytes.TrimSuffix(line, []byte("\n")))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := record.Parse(in)
		if err != nil {
			return
		}
		if err := r.Verify(key.record()); err == nil && !bytes.Equal(r.Message(), rec.Message()) {
			t.Fatal("a forged record")
		}
	})
}

// TestAReplacedKeyIsSaidOnce: one loud line, however many heads the old key has
// signed, and in status what it means.
func TestAReplacedKeyIsSaidOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := testKey(t, dir)
	l := open(t, dir, old)
	if !l.Fresh() || len(l.Trouble()) != 0 {
		t.Errorf("a new file: fresh %v, trouble %q", l.Fresh(), l.Trouble())
	}
	if some, err := l.Any(); some || err != nil {
		t.Errorf("a new file has heads (%v)", err)
	}
	for i := range 5 {
		l.Publish([]journal.NewHead{head(fmt.Sprint("t", i), 1)}, true)
		flush(t, l)
	}
	closeLog(t, l)
	other := testKey(t, filepath.Join(dir, "other"))
	var said bytes.Buffer
	l, err := Open(Options{File: file1(dir), Key: other, Log: hclog.New(&hclog.LoggerOptions{Output: &said})})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	if n := strings.Count(said.String(), "\n"); n != 1 || !strings.Contains(said.String(), "[ERROR]") || !strings.Contains(said.String(), "the host key was replaced") ||
		!strings.Contains(said.String(), old.ID) || !strings.Contains(said.String(), "lines=6") {
		t.Errorf("%d lines: %s", n, said.String())
	}
	if tr := l.Trouble(); len(tr) != 1 || !strings.Contains(tr[0], "the host key was replaced: 6 lines") || !strings.Contains(tr[0], other.ID) || !strings.Contains(tr[0], "put the old key back") {
		t.Errorf("trouble %q", tr)
	}
	if some, err := l.Any(); !some || err != nil || l.Fresh() {
		t.Errorf("any %v, %v, fresh %v", some, err, l.Fresh())
	}
	if l.Doubt("t3") == nil {
		t.Error("a head of the old key is relied on")
	}
}
