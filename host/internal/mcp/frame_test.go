package mcp

import (
	"encoding/json"
	"strings"
	"testing"
)

// What stands around the arguments is read as strictly as they are: nothing is
// dropped in silence, an envelope least of all, and every refusal is JSON-RPC's.
func TestTheFrameOfACallIsReadStrictly(t *testing.T) {
	t.Parallel()
	_, d, url := endpoint(t)
	wc := `{"_wc":{"control":{` + progress + `}}}`
	for _, revision := range []string{Revision, LegacyRevision} {
		good := callBody(revision, "list_goals", `{}`)
		with := func(old, now string) string {
			t.Helper()
			out := strings.Replace(good, old, now, 1)
			if out == good {
				t.Fatalf("%s is not in %s", old, good)
			}
			return out
		}
		meta := func(member string) string {
			if revision == Revision {
				return with(`"_meta":{`, `"_meta":{`+member+`,`)
			}
			return with(`"params":{`, `"params":{"_meta":{`+member+`},`)
		}
		nonce := `"` + metaNonce + `":`
		for name, c := range map[string]struct {
			body string
			code int
			id   string
		}{
			"arguments in another case":         {with(`"arguments":{}`, `"Arguments":`+wc), -32602, `7`},
			"an envelope beside the arguments":  {with(`"arguments":{}`, `"arguments":{},`+wc[1:len(wc)-1]), -32602, `7`},
			"an envelope at the root":           {with(`"id":7`, `"id":7,`+wc[1:len(wc)-1]), -32600, `7`},
			"an envelope beside another method": {`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":` + wc + `}`, -32602, `7`},
			"an unknown parameter":              {with(`"arguments":{}`, `"arguments":{},"SENTINEL":1`), -32602, `7`},
			"an unknown member":                 {with(`"id":7`, `"id":7,"SENTINEL":1`), -32600, `7`},
			"the method in another case":        {with(`"method"`, `"Method"`), -32600, `7`},
			"no method":                         {`{"jsonrpc":"2.0","id":7}`, -32600, `7`},
			"the version in another case":       {with(`"jsonrpc"`, `"JSONRPC"`), -32600, `7`},
			"another version":                   {with(`"2.0"`, `"1.0"`), -32600, `7`},
			"a request with a result":           {with(`"id":7`, `"id":7,"result":{}`), -32600, `7`},
			"no id":                             {with(`"id":7,`, ``), -32600, `null`},
			"a notification with an id":         {with(`tools/call`, `notifications/cancelled`), -32600, `7`},
			"parameters that are no object":     {`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":[]}`, -32602, `"x"`},
			"no parameters":                     {`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, -32602, `7`},
			"no name":                           {with(`"name":"list_goals",`, ``), -32602, `7`},
			"_meta that is no object":           {`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":1}}`, -32602, `7`},
			"id null":                           {with(`"id":7`, `"id":null`), -32600, `null`},
			"id an object":                      {with(`"id":7`, `"id":{}`), -32600, `null`},
			"id true":                           {with(`"id":7`, `"id":true`), -32600, `null`},
			"id 1.5":                            {with(`"id":7`, `"id":1.5`), -32600, `null`},
			"id 2.9":                            {with(`"id":7`, `"id":2.9`), -32600, `null`},
			"id 1e2":                            {with(`"id":7`, `"id":1e2`), -32600, `null`},
			"id 2^53+1":                         {with(`"id":7`, `"id":9007199254740993`), -32600, `null`},
			"id 2^64":                           {with(`"id":7`, `"id":18446744073709551616`), -32600, `null`},
			"a nonce that is a number":          {meta(nonce + `7`), -32602, `7`},
			"a nonce that is null":              {meta(nonce + `null`), -32602, `7`},
			"a nonce that is empty":             {meta(nonce + `""`), -32602, `7`},
			"a nonce in another case":           {meta(strings.ToUpper(nonce) + `"n"`), -32602, `7`},
		} {
			a := post(t, url, "all", revision, c.body, "Mcp-Method", "tools/call", "Mcp-Name", "list_goals")
			if a.status != 400 || a.code != c.code || idOf(a) != c.id || strings.Contains(a.text, "SENTINEL") {
				t.Errorf("%s, %s: %d %s", revision, name, a.status, a.text)
			}
		}
		for id, body := range map[string]string{
			`"é\u2028"`:           with(`"id":7`, `"id":"é\u2028"`),
			`9007199254740991`:    with(`"id":7`, `"id":9007199254740991`),
			`-9007199254740991`:   with(`"id":7`, `"id":-9007199254740991`),
			`0`:                   with(`"id":7`, `"id":0`),
			`"a task is ignored"`: with(`"id":7,"method":"tools/call","params":{`, `"id":"a task is ignored","method":"tools/call","params":{"task":{"ttl":1},`),
			`"a nonce"`:           strings.Replace(meta(nonce+`"n"`), `"id":7`, `"id":"a nonce"`, 1),
		} {
			a := post(t, url, "all", revision, body, "Mcp-Method", "tools/call", "Mcp-Name", "list_goals")
			if a.status != 200 || a.result == nil || decoded(idOf(a)) != decoded(id) {
				t.Errorf("%s, id %s: %d %s", revision, id, a.status, a.text)
			}
		}
	}
	if n := d.checkpoints.Load(); n != 0 {
		t.Errorf("%d sidecars ran", n)
	}
	if a := post(t, url, "all", LegacyRevision, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status != 202 {
		t.Errorf("a notification: %d %s", a.status, a.text)
	}
}

func idOf(a answer) string {
	var rpc struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal([]byte(a.text), &rpc)
	return string(rpc.ID)
}

// decoded is a string as it is read, anything else as it stands.
func decoded(text string) string {
	var s string
	if json.Unmarshal([]byte(text), &s) == nil {
		return s
	}
	return text
}
