package api

import (
	"encoding/json"
	"testing"
)

// FuzzDispatchBody holds the decoder of a closed body against encoding/json:
// what it takes is an object with known members, each once, and the values are
// those that encoding/json sees.
func FuzzDispatchBody(f *testing.F) {
	for _, seed := range []string{
		`{"objective":"x"}`, `{"objective":"x","mission_id":"a/../b","metadata":{"a":[1,{"b":null}]}}`, `{"objective":"x","objective":"y"}`,
		`{"objective":"x","metadata":{"a":{"b":1,"b":2}}}`, `{"objective":"\ud800","capabilities":["a"]}`, ` [] `, `{}`, `null`, `{"long_running":true}`, `{"":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b dispatchBody
		p := decodeBody(data,
			member{"mission_id", &b.MissionID, false}, member{"objective", &b.Objective, true},
			member{"long_running", &b.LongRunning, false}, member{"capabilities", &b.Capabilities, false}, member{"metadata", &b.Metadata, false})
		if p != nil {
			if p.Status != 400 || p.Err == "" {
				t.Fatalf("problem %+v", p)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("took what is no object: %v", err)
		}
		for name := range want {
			switch name {
			case "mission_id", "objective", "long_running", "capabilities", "metadata":
			default:
				t.Fatalf("took the unknown member %q", name)
			}
		}
		var objective string
		if err := json.Unmarshal(want["objective"], &objective); err != nil || objective != b.Objective {
			t.Fatalf("objective %q, want %q (%v)", b.Objective, objective, err)
		}
		if _, err := b.dispatch(); err != nil {
			t.Fatalf("dispatch of what was taken: %v", err)
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var c dispatchBody
		if p := decodeBody(again,
			member{"mission_id", &c.MissionID, false}, member{"objective", &c.Objective, true},
			member{"long_running", &c.LongRunning, false}, member{"capabilities", &c.Capabilities, false}, member{"metadata", &c.Metadata, false}); p != nil {
			t.Fatalf("does not take its own canonical form: %s", p.Err)
		}
	})
}
