package main

import (
	"encoding/json"
	"testing"
)

// What an issuer answers is an acknowledgement only if every reader would take it
// for one.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{`{"revoked":true}`, `{"revoked":false}`, `{"revoked":"true"}`, `{"Revoked":true}`, `{"revoked":true,"revoked":false}`,
		`{"a":{"revoked":true}}`, `[{"revoked":true}]`, `{"revoked":true} x`, `{"revoked":1}`, "", `{"\u0072evoked":true}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		yes, why := literalTrue(body, "revoked")
		if yes != (why == "") {
			t.Fatalf("%v, %q", yes, why)
		}
		if !yes {
			return
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(body, &m); err != nil || string(m["revoked"]) != "true" {
			t.Errorf("taken for an acknowledgement: %q (%v)", body, err)
		}
	})
}
