package daemon

import "testing"

// A refused dispatch is said in the host's words, however often they were packed
// into JSON on their way.
func TestARefusalIsSaidInWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"error":"executor_forward_failed","detail":"HTTP 404: {\"type\":\"agent-not-connected\",\"detail\":\"no agent block is named \\\"nope\\\"\"}"}`: `no agent block is named "nope"`,
		`{"error":"executor_forward_failed","detail":{"status":503,"detail":"the queue is full"}}`:                                                        "the queue is full",
		`{"error":"executor_forward_failed","detail":"no answer"}`:                                                                                        "no answer",
		`{"error":"Invalid JSON body"}`: "Invalid JSON body",
		` not JSON `:                    "not JSON",
		`{"other":1}`:                   `{"other":1}`,
	} {
		if got := refusalWords([]byte(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
