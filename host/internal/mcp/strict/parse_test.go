package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// What is refused, at every depth, although encoding/json takes much of it.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":                  "",
		"space":                    " \n",
		"after the value":          `{} {}`,
		"a comma after the value":  `{},`,
		"a name twice":             `{"a":1,"a":2}`,
		"a name twice, escaped":    `{"a":1,"\u0061":2}`,
		"a name twice in depth":    `{"x":[{"y":{"_wc":1,"_wc":2}}]}`,
		"a name twice among many":  `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"c":2}`,
		"half a pair":              `"\ud83d"`,
		"half a pair and text":     `"\ud83dx"`,
		"two first halves":         `"\ud83d\ud83d"`,
		"a second half alone":      `"\ude00"`,
		"no UTF-8":                 "\"\xff\"",
		"no UTF-8 in a name":       "{\"\xc3\":1}",
		"overlong UTF-8":           "\"\xc0\xaf\"",
		"surrogate as UTF-8":       "\"\xed\xa0\x80\"",
		"a control character":      "\"a\nb\"",
		"NUL":                      "\"\x00\"",
		"a bad escape":             `"\x41"`,
		"short hex":                `"\u12"`,
		"an open string":           `"abc`,
		"an open object":           `{"a":1`,
		"an open array":            `[1`,
		"a comma too many":         `[1,]`,
		"a comma too many, object": `{"a":1,}`,
		"no colon":                 `{"a" 1}`,
		"no name":                  `{1:2}`,
		"NaN":                      `NaN`,
		"Infinity":                 `-Infinity`,
		"a plus":                   `+1`,
		"a leading zero":           `01`,
		"a bare point":             `1.`,
		"a bare exponent":          `1e`,
		"a bare minus":             `-`,
		"hex":                      `0x1`,
		"a comment":                `/**/1`,
		"a byte order mark":        "\ufeff{}",
		"too deep":                 strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
		"too many members":         members(MaxMembers + 1),
		"too many items":           "[" + strings.Repeat("0,", MaxItems) + "0]",
		"too many values":          "[" + strings.Repeat("["+strings.Repeat("0,", 999)+"0],", 131) + "0]",
		"too long":                 `"` + strings.Repeat("x", MaxBytes) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse([]byte(text)); !errors.Is(err, ErrSyntax) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func members(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"` + strings.Repeat("n", i+1) + `":0`)
	}
	return "{" + b.String()[1:] + "}"
}

func TestParseTakesTheLimits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), members(MaxMembers),
		"[" + strings.Repeat("0,", MaxItems-1) + "0]", ` {"a" : [ true , false , null , -0.5e+3 , "\ud83d\ude00\/" ] } `,
	} {
		v, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Raw) != strings.TrimSpace(text) {
			t.Error("the bytes are not those that came")
		}
	}
}

// What came is not in an error: it may be a secret.
func TestErrorsOfParseRepeatNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"sentinel":1,"sentinel":2}`, `{"a":sentinel}`, `"sentinel`, `{"sentinel"}`} {
		if _, err := Parse([]byte(text)); err == nil || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestWithoutKeepsTheBytes(t *testing.T) {
	t.Parallel()
	v, err := Parse([]byte(`{ "b" : {"n":1.50}, "_wc":{"control":{}}, "é\n": [ 1,2 ] }`))
	if err != nil {
		t.Fatal(err)
	}
	got := v.Without("_wc")
	if want := `{"b":{"n":1.50},"é\n":[ 1,2 ]}`; string(got.Raw) != want {
		t.Errorf("got %s, want %s", got.Raw, want)
	}
	if got.Has("_wc") || len(got.Members) != 2 {
		t.Error("the member is still there")
	}
}

// FuzzParse holds the accept set to be smaller than that of encoding/json, with
// equal values.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00",null,true],"b":{"c":-0}}`, `[]`, `"x"`, `{"a":1,"a":2}`, `1e400`, "\"\xff\"",
		`{"_wc":{"control":{"before":{"goal_progress":{"expected_revision":3}}}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("encoding/json refuses what was taken: %v", err)
		}
		if !json.Valid(text) {
			t.Fatal("not valid JSON, and taken")
		}
		if got := plain(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	})
}

// plain is a value as encoding/json gives it.
func plain(v Value) any {
	switch v.Kind {
	case Bool:
		return v.Raw[0] == 't'
	case Number:
		return json.Number(v.Raw)
	case String:
		return v.Text
	case Array:
		out := make([]any, 0, len(v.Items))
		for _, i := range v.Items {
			out = append(out, plain(i))
		}
		return out
	case Object:
		out := map[string]any{}
		for _, m := range v.Members {
			out[m.Name] = plain(m.Value)
		}
		return out
	}
	return nil
}
