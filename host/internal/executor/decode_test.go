package executor

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestCanonicalFormIgnoresOrderSpaceAndNulls(t *testing.T) {
	t.Parallel()
	a, err := decodeDispatch([]byte(`{"mission_id":"m","objective":"a<b","completion":null,"executor_filter":{"agent_id":null,"capabilities":["x"]},"metadata":{"b":1.50,"a":[1,null]}}`))
	if err != nil {
		t.Fatal(err)
	}
	same := "{ \"metadata\" : {\"a\":[1,null],\"b\":1.50},\n \"executor_filter\":{\"capabilities\":[\"x\"]}, \"objective\":\"a\\u003cb\", \"mission_id\":\"m\" }"
	b, err := decodeDispatch([]byte(same))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Payload, b.Payload) {
		t.Errorf("%s\n%s", a.Payload, b.Payload)
	}
	for _, other := range []string{
		`{"mission_id":"m","objective":"a<b","executor_filter":{"capabilities":["x"]},"metadata":{"b":1.5,"a":[1]}}`,
		`{"mission_id":"m","objective":"a<c","executor_filter":{"capabilities":["x"]},"metadata":{"b":1.50,"a":[1,null]}}`,
	} {
		c, err := decodeDispatch([]byte(other))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(a.Payload, c.Payload) {
			t.Errorf("not told apart: %s", c.Payload)
		}
	}
}

func TestSessionIDComesFromMetadata(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"mission_id":"m","objective":"x","metadata":{"session_id":"s","mc_session_id":"mc"}}`: "s",
		`{"mission_id":"m","objective":"x","metadata":{"session_id":7,"mc_session_id":"mc"}}`:   "mc",
		`{"mission_id":"m","objective":"x","metadata":{"session_id":null}}`:                     "",
	} {
		d, err := decodeDispatch([]byte(text))
		if err != nil || d.SessionID != want {
			t.Errorf("%s: %q %v", text, d.SessionID, err)
		}
	}
}

func FuzzDispatchBody(f *testing.F) {
	f.Add([]byte(`{"mission_id":"m","objective":"x","completion":null,"executor_filter":{"agent_id":"a","capabilities":["b"]},"metadata":{"session_id":"s"}}`))
	f.Add([]byte(`{"mission_id":"\ud83e\udd80","objective":"\u0000"}`))
	f.Add([]byte(`{"mission_id":"m","mission_id":"m"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := decodeDispatch(raw)
		if err != nil {
			return
		}
		if n := utf8.RuneCountInString(d.MissionID); n < 1 || n > maxMissionID || d.Objective == "" {
			t.Fatalf("taken: %+v", d)
		}
		again, err := decodeDispatch(d.Payload)
		if err != nil {
			t.Fatalf("the canonical form is refused: %v", err)
		}
		if again.MissionID != d.MissionID || again.Objective != d.Objective || again.AgentID != d.AgentID || !bytes.Equal(again.Payload, d.Payload) {
			t.Fatalf("the canonical form is another dispatch: %s", d.Payload)
		}
		var v map[string]any
		if json.Unmarshal(raw, &v) != nil || v["mission_id"] != d.MissionID {
			t.Fatalf("read otherwise by encoding/json: %q", d.MissionID)
		}
	})
}
