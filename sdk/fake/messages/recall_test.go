package messages

import (
	"encoding/json"
	"testing"
)

// A call can have what earlier calls gave back: the newest result counts, a
// value keeps its type, and what nothing has stays as it is written.
func TestACallRecallsEarlierResults(t *testing.T) {
	t.Parallel()
	text := `[
	 {"role":"user","content":"x"},
	 {"role":"assistant","content":[{"type":"tool_use","id":"a_1"}]},
	 {"role":"user","content":[{"type":"tool_result","tool_use_id":"a_1","content":[{"type":"text","text":"a note"},{"type":"text","text":"{\"output\":{\"id\":\"old\",\"n\":3,\"only\":{\"first\":true}}}"}]}]},
	 {"role":"assistant","content":[{"type":"tool_use","id":"b_2"}]},
	 {"role":"user","content":[{"type":"tool_result","tool_use_id":"b_2","content":"{\"output\":{\"list\":[{\"id\":\"new\"}]}}"}]}]`
	var c conversation
	if err := json.Unmarshal([]byte(text), &c.Messages); err != nil {
		t.Fatal(err)
	}
	got := c.recall(json.RawMessage(`{"a":"{{id}}","b":"{{n}}","c":["{{only}}"],"d":"{{none}}","e":"not {{id}}"}`))
	if want := `{"a":"new","b":3,"c":[{"first":true}],"d":"{{none}}","e":"not {{id}}"}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
