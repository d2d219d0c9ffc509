package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		" { } ": `{}`, "{\n\t\"b\" : 1 ,\r\n \"a\":[ 1 , {} ] }": `{"b":1,"a":[1,{}]}`,
		`{"n":1e400,"m":123456789012345678901234567890.10,"z":-0.0}`: `{"n":1e400,"m":123456789012345678901234567890.10,"z":-0.0}`,
		"{\"nfc\":\"é\",\"nfd\":\"e\u0301\",\"é\":1,\"e\u0301\":2}":  "{\"nfc\":\"é\",\"nfd\":\"e\u0301\",\"é\":1,\"e\u0301\":2}",
		`{"s":"a \u0061 \/ \ud83d\ude00 <&> \" \\ {} [] , :"}`:       `{"s":"a \u0061 \/ \ud83d\ude00 <&> \" \\ {} [] , :"}`,
		`{"":{"":{}}}`: `{"":{"":{}}}`,
	} {
		got, err := Canonical(json.RawMessage(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for in, say := range map[string]string{
		`{"a":"\ud800"}`: "half of a surrogate pair", `{"\udc00":1}`: "half of a surrogate pair", "": "JSON object", "null": "JSON object", "[1]": "JSON object", `"{}"`: "JSON object", "{": "not JSON at byte", `{"a":1}x`: "not JSON at byte", `{"a":01}`: "not JSON", `{"a":NaN}`: "not JSON",
		`{"a":1,"b":{"c":[0,{"d":1,"d":2}]}}`: `"/b/c/1/d" is given twice`, `{"a":1,"\u0061":2}`: `"/a" is given twice`, `{"x/y":{"~":1,"~":1}}`: `"/x~1y/~0"`,
		"{\"a\":\"\xff\"}": "UTF-8 at byte 6", "{\"a\":\"\xed\xa0\x80\"}": "UTF-8 at byte 6", `{"a":"` + strings.Repeat("x", MaxArgsBytes) + `"}`: "at most 1048576",
		strings.Repeat(`{"a":`, 65) + "{}" + strings.Repeat("}", 65): "64 levels deep", `{"` + strings.Repeat("k", 900) + `":{"a":1,"a":1}}`: "…",
	} {
		_, err := Canonical(json.RawMessage(in))
		if !errors.Is(err, ErrArgs) || !strings.Contains(err.Error(), say) || len(err.Error()) > 400 {
			t.Errorf("%.60s: %v", in, err)
		}
	}
	if _, err := Canonical(json.RawMessage(strings.Repeat(`{"a":`, 64) + "{}" + strings.Repeat("}", 64))); err != nil {
		t.Error(err)
	}
}

// FuzzArgs: whatever the bytes, checking ends; what is accepted is JSON of the
// same meaning and stays as it is; redaction and rules end too.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":null}],"password":"x"}`, `{"a":1,"a":2}`, `{"\ud800":"\udc00","é":1e400}`, `{"password":{"password":[1]}}`, ` {"a" : "\\\"" } `, `[`, "{\"\xff\":1}"} {
		f.Add([]byte(s))
	}
	r := rules(f, full+`
redact "all" {
  tool    = "*"
  pointer = "/password"
}
redact "deep" {
  tool    = "pay"
  pointer = "/a/1/b"
}`)
	f.Fuzz(func(t *testing.T, args []byte) {
		r.Evaluate(Input{Tool: "pay", Args: args})
		shown := r.Redact("pay", args)
		if !json.Valid(shown) {
			t.Fatalf("redacted: %q", shown)
		}
		out, err := Canonical(args)
		if err != nil {
			return
		}
		again, err := Canonical(out)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q, then %q, %v", out, again, err)
		}
		var a, b any
		da, db := json.NewDecoder(bytes.NewReader(args)), json.NewDecoder(bytes.NewReader(out))
		da.UseNumber()
		db.UseNumber()
		if da.Decode(&a) != nil || db.Decode(&b) != nil {
			t.Fatalf("%q is not JSON", out)
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if !bytes.Equal(x, y) {
			t.Fatalf("%q means something else than %q", out, args)
		}
		v := parsed(t, string(out))
		if merged := v.merge(parsed(t, `{"password":{"x":1},"new\n":2}`)); !json.Valid(merged) {
			t.Fatalf("merged: %q", merged)
		}
		if same := v.merge(parsed(t, `{}`)); !bytes.Equal(same, out) {
			t.Fatalf("an empty patch changes %q to %q", out, same)
		}
	})
}
