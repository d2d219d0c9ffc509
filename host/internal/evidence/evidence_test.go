package evidence_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/airlock-host/airlock/host/internal/evidence"
	"github.com/airlock-host/airlock/host/internal/heads/record"
	"github.com/airlock-host/airlock/host/internal/journal"
)

const uuid = "0198c6a0-0000-7000-8000-000000000001"

// keyOf makes the same key for the same letter.
func keyOf(letter byte) (ed25519.PrivateKey, record.Key) {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{letter}, ed25519.SeedSize))
	public, _ := private.Public().(ed25519.PublicKey)
	return private, record.Key{ID: record.KeyID(public), Public: public}
}

// life is a mission with every kind of evidence.
func life() []journal.Event {
	head := journal.Genesis("mission/ü", uuid)
	var events []journal.Event
	for i, e := range [][2]string{
		{"task_opened", `{"v":1,"journal_uuid":"` + uuid + `","agent":"agent-01","isolation":"isolation.docker.c","runtime":"runtime.command.shell","objective":"<make> it","mode":"govern","rules_digest":"ab","policy":"default = \"allow\"","stages":["policy"]}`},
		{"assigned", `{"v":1}`},
		{"starting", `{"v":1,"generation":1,"cell_id":"c","plugins":[{"ref":"runtime.command.shell","version":"1.0","sha256":"cd"}]}`},
		{"started", `{"v":1,"generation":1}`},
		{"approval", `{"v":1,"decision_id":"d1","resolved_decision_id":"d2","action":"approve_once","actor":"op","explanation":"fine"}`},
		{"rules_changed", `{"v":1,"epoch":2,"rules_digest":"ef","policy":"default = \"deny\"","stages":["policy"],"mode":"govern"}`},
		{"revocation_result", `{"v":1,"stop_id":"s1","issuer":"bank","result":"acknowledged","evidence":"sha256:1"}`},
		{"stop_acknowledged", `{"v":1,"stop_id":"s1","receipt":{"access_revocation":"acknowledged"}}`},
		{"ended", `{"v":1,"state":"aborted","reason":"enough"}`},
	} {
		var ev journal.Event
		ev, head = head.Next(fmt.Sprintf("%s-%02d", uuid, i), time.UnixMilli(int64(1000*i)), journal.Kind(e[0]), e[1])
		events = append(events, ev)
	}
	return events
}

func headOf(events []journal.Event) journal.Head {
	last := events[len(events)-1]
	return journal.Head{TaskID: last.TaskID, JournalUUID: uuid, Sequence: last.Sequence, Digest: last.Digest}
}

func bundle(t testing.TB, events []journal.Event) []byte {
	t.Helper()
	head := headOf(events)
	var out bytes.Buffer
	w, err := evidence.NewWriter(&out, head)
	for i := range events {
		if err == nil {
			err = w.Event(&events[i])
		}
	}
	private, key := keyOf('k')
	if err == nil {
		err = w.Close(record.Sign(private, time.UnixMilli(5000), []journal.NewHead{{Head: head}}), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// reseal puts the digest of the last line right, as somebody would who changes a
// bundle on purpose.
func reseal(text string) string {
	lines := strings.SplitAfter(text, "\n")
	body := strings.Join(lines[:max(0, len(lines)-2)], "")
	sum := sha256.Sum256([]byte(body))
	return body + `{"sha256":"` + hex.EncodeToString(sum[:]) + "\"}\n"
}

func damage(t *testing.T, what string, text []byte, key *record.Key) error {
	t.Helper()
	_, err := evidence.Verify(bytes.NewReader(text), key)
	var d *evidence.DamageError
	if !errors.As(err, &d) || d.Line < 1 {
		t.Errorf("%s: %v", what, err)
	}
	return err
}

func TestABundleShowsWhatIsInIt(t *testing.T) {
	t.Parallel()
	_, key := keyOf('k')
	got, err := evidence.Verify(bytes.NewReader(bundle(t, life())), &key)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Trusted || got.TaskID != "mission/ü" || got.Events != 9 || got.State != "aborted" || got.KeyID != key.ID {
		t.Errorf("%+v", got)
	}
	for name, n := range map[string]int{"mission": 1, "policy": 2, "plugins": 1, "approval": 1, "revocation": 1, "receipt": 1, "outcome": 1} {
		if got.Told[name] != n {
			t.Errorf("%d times %s, want %d", got.Told[name], name, n)
		}
	}
	if got, err := evidence.Verify(bytes.NewReader(bundle(t, life())), nil); err != nil || got.Trusted {
		t.Errorf("without a key: %+v, %v", got, err)
	}
}

// Every single bit of a bundle counts. With AIRLOCK_FULL=1 (make crash) each is
// flipped, else every seventh.
func TestEveryBitOfABundle(t *testing.T) {
	t.Parallel()
	text := bundle(t, life())
	full := os.Getenv("AIRLOCK_FULL") == "1"
	for i := range text {
		for bit := range 8 {
			if !full && (8*i+bit)%7 != 0 {
				continue
			}
			text[i] ^= 1 << bit
			damage(t, fmt.Sprintf("bit %d of byte %d", bit, i), text, nil)
			text[i] ^= 1 << bit
		}
	}
}

func TestEveryLineAndEveryCutOfABundle(t *testing.T) {
	t.Parallel()
	whole := string(bundle(t, life()))
	lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	for i := range lines {
		for what, text := range map[string]string{
			"without":    join(lines[:i], lines[i+1:]),
			"doubled":    join(lines[:i+1], lines[i:]),
			"cut before": join(lines[:i]),
		} {
			damage(t, fmt.Sprintf("line %d %s", i+1, what), []byte(text), nil)
			if i < len(lines)-1 { // also by somebody who seals it again
				damage(t, fmt.Sprintf("line %d %s, sealed again", i+1, what), []byte(reseal(text)), nil)
			}
		}
		if i > 0 {
			swapped := join(lines[:i-1], []string{lines[i], lines[i-1]}, lines[i+1:])
			damage(t, fmt.Sprintf("line %d swapped", i+1), []byte(swapped), nil)
		}
	}
	for n := 0; n < len(whole); n += 3 {
		damage(t, fmt.Sprintf("cut after %d bytes", n), []byte(whole[:n]), nil)
	}
	damage(t, "text behind it", []byte(whole+"\n"), nil)
	damage(t, "a bundle behind it", []byte(whole+whole), nil)
}

// Whoever changes a bundle on purpose can seal it again, and is found out by the
// chain, by what must follow from it, or by the key.
func TestAForgedBundleIsFoundOut(t *testing.T) {
	t.Parallel()
	whole := string(bundle(t, life()))
	for what, r := range map[string][2]string{
		"another actor in the evidence":   {`"evidence":"approval","sequence":5,"at":"1970-01-01T00:00:04Z","decision_id":"d1","resolved_decision_id":"d2","action":"approve_once","actor":"op"`, `"evidence":"approval","sequence":5,"at":"1970-01-01T00:00:04Z","decision_id":"d1","resolved_decision_id":"d2","action":"approve_once","actor":"me"`},
		"another outcome in the evidence": {`"state":"aborted","reason":"enough"}` + "\n" + `{"signed`, `"state":"done","reason":"enough"}` + "\n" + `{"signed`},
		"another actor in the event":      {`\"actor\":\"op\",\"explanation\"`, `\"actor\":\"me\",\"explanation\"`},
		"another task":                    {`{"airlock_bundle":1,"task_id":"mission/ü"`, `{"airlock_bundle":1,"task_id":"mission/x"`},
		"white space":                     {`{"airlock_bundle":1,`, `{"airlock_bundle":1, `},
		"another version":                 {`{"airlock_bundle":1,`, `{"airlock_bundle":2,`},
	} {
		if !strings.Contains(whole, r[0]) {
			t.Fatalf("%s: the bundle has no %s", what, r[0])
		}
		damage(t, what, []byte(reseal(strings.Replace(whole, r[0], r[1], 1))), nil)
	}
	// A whole forgery, right in itself, is not by the host's key.
	_, other := keyOf('x')
	err := damage(t, "a forgery", []byte(whole), &other)
	if err == nil || !strings.Contains(err.Error(), other.ID) {
		t.Errorf("%v does not name the key", err)
	}
	// A shorter chain with the longer one's signature.
	events := life()
	head := headOf(events[:5])
	var out bytes.Buffer
	w, err := evidence.NewWriter(&out, head)
	for i := range 5 {
		err = errors.Join(err, w.Event(&events[i]))
	}
	private, key := keyOf('k')
	err = errors.Join(err, w.Close(record.Sign(private, time.Now(), []journal.NewHead{{Head: headOf(events)}}), key))
	if err != nil {
		t.Fatal(err)
	}
	damage(t, "another chain's signature", out.Bytes(), &key)
}

// endless is a line that never ends.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	e.n += int64(len(p))
	return len(p), nil
}

// There is no archive to leave a directory by and nothing to unpack; what grows
// without end is given up early.
func TestHostileBundlesAreRefused(t *testing.T) {
	t.Parallel()
	var zipped, gzipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	f, err := z.Create("../../etc/passwd")
	if err == nil {
		_, err = f.Write([]byte("root"))
	}
	g := gzip.NewWriter(&gzipped)
	_, gerr := g.Write(bytes.Repeat([]byte{'a'}, 10<<20))
	if err := errors.Join(err, z.Close(), gerr, g.Close()); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"a zip": zipped.Bytes(), "a gzip": gzipped.Bytes()} {
		if err := damage(t, what, text, nil); err == nil || !strings.Contains(err.Error(), "archive") {
			t.Errorf("%s: %v", what, err)
		}
	}
	export := journal.NewWriter(&zipped)
	zipped.Reset()
	events := life()
	if err := errors.Join(export.Write(&events[0]), export.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := damage(t, "a plain export", zipped.Bytes(), nil); err == nil || !strings.Contains(err.Error(), "journal verify") {
		t.Error(err)
	}
	long := &endless{}
	_, err = evidence.Verify(io.MultiReader(strings.NewReader(evidence.Prefix), long), nil)
	if !errors.As(err, new(*evidence.DamageError)) || long.n > 80<<20 {
		t.Errorf("%v after %d bytes", err, long.n)
	}
	damage(t, "an event count out of this world", []byte(`{"airlock_bundle":1,"task_id":"t","journal_uuid":"u","events":18446744073709551615,"digest":"`+strings.Repeat("00", 32)+"\"}\n"), nil)
	damage(t, "no events", []byte(`{"airlock_bundle":1,"task_id":"t","journal_uuid":"u","events":0,"digest":"`+strings.Repeat("00", 32)+"\"}\n"), nil)
	damage(t, "nothing", nil, nil)
}

// The writer makes no bundle of a chain that is not right.
func TestABundleIsNotMadeOfABadChain(t *testing.T) {
	t.Parallel()
	events := life()
	w, err := evidence.NewWriter(io.Discard, headOf(events))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Event(&events[0]), w.Event(&events[1])); err != nil {
		t.Fatal(err)
	}
	if err := w.Event(&events[3]); err == nil {
		t.Error("an event is missing, and it is taken")
	}
	private, key := keyOf('k')
	if w.Close(record.Sign(private, time.Now(), []journal.NewHead{{Head: headOf(events)}}), key) == nil {
		t.Error("a bundle without its end is closed")
	}
}

func FuzzVerify(f *testing.F) {
	whole := bundle(f, life())
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(evidence.Prefix))
	f.Add([]byte("PK\x03\x04"))
	_, key := keyOf('k')
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := evidence.Verify(bytes.NewReader(text), &key)
		// What is signed with the key of the test is that one chain only.
		if err == nil && (!got.Trusted || got.Digest != headOf(life()).Digest) {
			t.Errorf("taken for good: %+v", got)
		}
	})
}
