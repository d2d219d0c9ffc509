package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const testUUID = "0b4f5f6e-8f3c-4f55-9d0c-3d1a9a9a0001"

// chainOf makes a chain of n events.
func chainOf(task string, n int) []Event {
	head := Genesis(task, testUUID)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	events := make([]Event, 0, n)
	for i := range n {
		kind, payload := Progress, fmt.Sprintf(`{"v":1,"phase":"execution","n":%d,"text":"a \"quoted\" line\nand <tags> & umlauts ü","path":"C:\\tmp"}`, i)
		if i == 0 {
			kind, payload = TaskOpened, fmt.Sprintf(`{"v":1,"journal_uuid":%q}`, testUUID)
		}
		var ev Event
		ev, head = head.Next(fmt.Sprintf("0b4f5f6e-8f3c-4f55-9d0c-%012d", i), at.Add(time.Duration(i)*time.Millisecond), kind, payload)
		events = append(events, ev)
	}
	return events
}

func export(t testing.TB, events []Event) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for i := range events {
		if err := w.Write(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func headOf(events []Event, n int) *Head {
	return &Head{TaskID: events[0].TaskID, JournalUUID: testUUID, Sequence: uint64(n), Digest: events[n-1].Digest}
}

func TestAnExportVerifiesByItselfAndAgainstItsHead(t *testing.T) {
	t.Parallel()
	events := chainOf("mission/ü .. \"q\"", 50)
	text := export(t, events)
	for _, trusted := range []*Head{nil, headOf(events, 50), headOf(events, 1), headOf(events, 17)} {
		head, err := Verify(bytes.NewReader(text), trusted)
		if err != nil {
			t.Fatal(err)
		}
		if head != *headOf(events, 50) {
			t.Fatalf("head = %+v", head)
		}
	}
}

func TestAnExportedLineIsReadBackExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		doc, err := json.Marshal(map[string]string{"text": rapid.String().Draw(rt, "text")})
		if err != nil {
			rt.Fatal(err)
		}
		at := time.UnixMilli(rapid.Int64Range(0, 200_000_000_000_000).Draw(rt, "ms"))
		task := rapid.StringN(1, 300, -1).Draw(rt, "task")
		ev, _ := Genesis(task, testUUID).Next(rapid.StringN(1, 40, -1).Draw(rt, "id"), at, Question, string(doc))
		if err := ev.Check(); err != nil {
			rt.Fatal(err)
		}
		line, err := ev.ExportJSON()
		if err != nil {
			rt.Fatal(err)
		}
		var std map[string]any
		if err := json.Unmarshal(line, &std); err != nil || std["payload"] != ev.Payload || std["task_id"] != ev.TaskID {
			rt.Fatalf("not the same for encoding/json: %v %s", err, line)
		}
		var got Event
		if err := NewReader(bytes.NewReader(append(line, '\n'))).Next(&got); err != nil {
			rt.Fatal(err)
		}
		if got != ev {
			rt.Fatalf("read %+v, wrote %+v", got, ev)
		}
	})
}

func TestALineWrittenByAnotherToolVerifies(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	for _, ev := range chainOf("t", 5) {
		var m map[string]any
		line, _ := ev.ExportJSON()
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		other, err := json.Marshal(m) // other order, other escapes
		if err != nil {
			t.Fatal(err)
		}
		out.Write(other)
		out.WriteByte('\n')
	}
	if _, err := Verify(&out, nil); err != nil {
		t.Fatal(err)
	}
}

func TestDamageIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	events := chainOf("t1", 10)
	lines := bytes.SplitAfter(export(t, events), []byte("\n"))[:10]
	join := func(ls ...[]byte) []byte { return bytes.Join(ls, nil) }
	without := func(i int) []byte { return join(join(lines[:i]...), join(lines[i+1:]...)) }
	swapped := append([][]byte{}, lines...)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	foreign := export(t, chainOf("t2", 10))
	relabelled := bytes.ReplaceAll(join(lines...), []byte(`"task_id":"t1"`), []byte(`"task_id":"t2"`))
	resummed := append([]Event{}, events...)
	resummed[5].Payload = `{"v":1,"other":true}`
	resummed[5].Digest = resummed[5].Sum()
	other := Genesis("t1", "another-uuid")
	wrongStart, _ := other.Next("id", events[0].Timestamp, TaskOpened, events[0].Payload)
	noOpening, _ := Genesis("t1", testUUID).Next("id", events[0].Timestamp, Started, `{}`)

	for _, c := range []struct {
		name    string
		text    []byte
		trusted *Head
		fault   Fault
		line    int
		seq     uint64
	}{
		{"torn last line", join(lines...)[:len(join(lines...))-20], nil, FaultTorn, 10, 10},
		{"last newline missing", bytes.TrimSuffix(join(lines...), []byte("\n")), nil, FaultTorn, 10, 10},
		{"torn line in the middle", join(join(lines[:3]...), lines[3][:30], []byte("\n"), join(lines[4:]...)), nil, FaultMalformed, 4, 4},
		{"gap", without(6), nil, FaultGap, 7, 7},
		{"first gone", without(0), nil, FaultGap, 1, 1},
		{"duplicate", join(join(lines[:5]...), lines[4], join(lines[5:]...)), nil, FaultDuplicate, 6, 6},
		{"reordered", join(swapped...), nil, FaultGap, 4, 4},
		{"older again", join(join(lines[:5]...), lines[1]), nil, FaultReordered, 6, 6},
		{"foreign task", join(join(lines[:4]...), bytes.SplitAfter(foreign, []byte("\n"))[4]), nil, FaultForeignTask, 5, 5},
		{"relabelled", relabelled, nil, FaultChanged, 1, 1},
		{"payload changed", bytes.Replace(join(lines...), []byte(`\"n\":7`), []byte(`\"n\":8`), 1), nil, FaultChanged, 8, 8},
		{"one event re-summed", export(t, resummed), nil, FaultBroken, 7, 7},
		{"wrong genesis", export(t, []Event{wrongStart}), nil, FaultGenesis, 1, 1},
		{"no task_opened", export(t, []Event{noOpening}), nil, FaultOpening, 1, 1},
		{"empty", nil, nil, FaultEmpty, 0, 1},
		{"blank line", join(lines[0], []byte("\n"), lines[1]), nil, FaultMalformed, 2, 2},
		{"repeated field", bytes.Replace(join(lines...), []byte(`{"sequence":3,`), []byte(`{"sequence":9,"sequence":3,`), 1), nil, FaultMalformed, 3, 3},
		{"extra field", bytes.Replace(join(lines...), []byte(`{"sequence":3,`), []byte(`{"x":9,"sequence":3,`), 1), nil, FaultMalformed, 3, 3},
		{"tail cut", join(lines[:8]...), headOf(events, 10), FaultTruncated, 8, 9},
		{"other digest at the trusted head", join(lines...), &Head{TaskID: "t1", JournalUUID: testUUID, Sequence: 4, Digest: Digest{1}}, FaultUntrusted, 4, 5},
		{"other journal", join(lines...), &Head{TaskID: "t1", JournalUUID: "x", Sequence: 4, Digest: events[3].Digest}, FaultUntrusted, 1, 1},
		{"head of another task", join(lines...), &Head{TaskID: "t9", JournalUUID: testUUID, Sequence: 4, Digest: events[3].Digest}, FaultForeignTask, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Verify(bytes.NewReader(c.text), c.trusted)
			var ce *ChainError
			if !errors.As(err, &ce) {
				t.Fatalf("err = %v", err)
			}
			if ce.Fault != c.fault || ce.Line != c.line || ce.Sequence != c.seq {
				t.Fatalf("got %s line %d sequence %d: %v", ce.Fault, ce.Line, ce.Sequence, err)
			}
			if c.line > 1 {
				if want := len(join(bytes.SplitAfter(c.text, []byte("\n"))[:c.line-1]...)); ce.Offset != int64(want) {
					t.Fatalf("offset = %d, want %d", ce.Offset, want)
				}
			}
		})
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	t.Parallel()
	text := export(t, chainOf("t1", 3))
	for i := range text {
		for _, bit := range []byte{1, 0x20, 0x80} {
			flipped := bytes.Clone(text)
			flipped[i] ^= bit
			if _, err := Verify(bytes.NewReader(flipped), nil); err == nil && !sameEvents(t, flipped, text) {
				t.Fatalf("bit %#x of byte %d (%q) was not seen", bit, i, text[max(0, i-10):min(len(text), i+10)])
			}
		}
	}
}

// sameEvents: a flip that leaves the events as they were (the case of a hex
// digit) is no damage.
func sameEvents(t *testing.T, a, b []byte) bool {
	t.Helper()
	ra, rb := NewReader(bytes.NewReader(a)), NewReader(bytes.NewReader(b))
	for {
		var ea, eb Event
		errA, errB := ra.Next(&ea), rb.Next(&eb)
		if errA != nil || errB != nil {
			return errors.Is(errA, io.EOF) && errors.Is(errB, io.EOF)
		}
		if ea != eb {
			return false
		}
	}
}

func TestALineLongerThanTheBufferIsRead(t *testing.T) {
	t.Parallel()
	first := chainOf("t", 1)[0]
	head := Head{TaskID: "t", JournalUUID: testUUID, Sequence: 1, Digest: first.Digest}
	big, head := head.Next("id", first.Timestamp, Progress, `{"v":1,"text":"`+strings.Repeat(`\"x`, 300_000)+`"}`)
	last, _ := head.Next("id2", first.Timestamp, Progress, `{"v":1}`)
	got, err := Verify(bytes.NewReader(export(t, []Event{first, big, last})), nil)
	if err != nil || got.Sequence != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestCheckRefusesWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	good := chainOf("t", 1)[0]
	for name, change := range map[string]func(*Event){
		"payload no object":   func(e *Event) { e.Payload = `[1]` },
		"payload no JSON":     func(e *Event) { e.Payload = `{"a":}` },
		"payload empty":       func(e *Event) { e.Payload = `` },
		"payload not UTF-8":   func(e *Event) { e.Payload = "{\"a\":\"\xff\"}" },
		"task id empty":       func(e *Event) { e.TaskID = "" },
		"task id not UTF-8":   func(e *Event) { e.TaskID = "\xff" },
		"event id empty":      func(e *Event) { e.EventID = "" },
		"unknown kind":        func(e *Event) { e.Kind = "nope" },
		"microseconds":        func(e *Event) { e.Timestamp = e.Timestamp.Add(time.Microsecond) },
		"year of five digits": func(e *Event) { e.Timestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		ev := good
		change(&ev)
		ev.Digest = ev.Sum()
		if err := ev.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ev := good
	ev.Payload = `{"v":2}`
	if err := ev.Check(); err == nil {
		t.Error("a wrong digest was accepted")
	}
}

func TestEventsAreJSONOverHTTPWithAnObjectPayload(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(chainOf("t", 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if len(m) != 8 || m["payload"][0] != '{' {
		t.Fatalf("%s", b)
	}
}

// The digest is a promise to every verifier ever written: this value, computed
// by another program from the definition, must not change.
func TestTheDigestIsStable(t *testing.T) {
	t.Parallel()
	ev := chainOf("task", 1)[0]
	const want = "91c355b8de4bf29c3b876cd79b09c3242608c72124422b0057635e24b5f82774"
	if got := ev.Digest.String(); got != want {
		t.Fatalf("digest = %s", got)
	}
}

func FuzzReader(f *testing.F) {
	text := export(f, chainOf("t", 3))
	f.Add(text)
	f.Add(text[:len(text)-5])
	f.Add([]byte(`{"sequence":1}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		head, err := Verify(bytes.NewReader(in), nil)
		if err != nil {
			var ce *ChainError
			if !errors.As(err, &ce) {
				t.Fatalf("not a ChainError: %v", err)
			}
			if ce.Line > bytes.Count(in, []byte("\n"))+1 || ce.Offset > int64(len(in)) {
				t.Fatalf("place out of range: %+v", ce)
			}
			return
		}
		// What verifies must survive being written again.
		var out bytes.Buffer
		w, r := NewWriter(&out), NewReader(bytes.NewReader(in))
		for {
			var ev Event
			if err := r.Next(&ev); err != nil {
				break
			}
			if err := w.Write(&ev); err != nil {
				t.Fatal(err)
			}
		}
		_ = w.Flush()
		again, err := Verify(&out, &head)
		if err != nil || again != head {
			t.Fatalf("%+v != %+v: %v", again, head, err)
		}
	})
}

// Both readers of a line must agree wherever both take it.
func FuzzCanonical(f *testing.F) {
	for _, l := range bytes.Split(export(f, chainOf("t", 2)), []byte("\n")) {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var a, b Event
		if !NewReader(nil).canonical(line, &a) {
			return
		}
		if err := decodeAny(line, &b); err == nil && a != b {
			t.Fatalf("%+v != %+v", a, b)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	text := export(b, chainOf("bench", 100_000))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		head, err := Verify(bytes.NewReader(text), nil)
		if err != nil {
			b.Fatal(err)
		}
		n += int(head.Sequence)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
