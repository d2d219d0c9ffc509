package strict

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

type inner struct {
	ID string `wc:"id,required" json:"id"`
	On bool   `wc:"on" json:"on"`
}

type sample struct {
	Name  string   `wc:"name,required" json:"name" doc:"who"`
	Count int64    `wc:"count,required" json:"count"`
	Kind  string   `wc:"kind" json:"kind" enum:"a,b"`
	Tags  []string `wc:"tags" json:"tags" max:"2"`
	Steps []inner  `wc:"steps" json:"steps"`
	Note  *string  `wc:"note" json:"note"`
	In    *inner   `wc:"in" json:"in"`
	Free  Value    `wc:"free" json:"-"`
}

// corpus is what shapes are tried with; the flag says whether it is a sample.
var corpus = []struct {
	text string
	ok   bool
}{
	{`{"name":"n","count":3}`, true},
	{`{"name":"","count":-5,"kind":"a","tags":[],"steps":[],"note":"","in":{"id":"x"},"free":{"any":[{"thing":null}]}}`, true},
	{`{"name":"n","count":9223372036854775807,"tags":["a","b"],"steps":[{"id":"i","on":true}]}`, true},
	{`{"name":"n"}`, false}, {`{"count":3}`, false}, {`{}`, false}, {`[]`, false}, {`["n",3]`, false}, {`null`, false}, {`"x"`, false},
	{`{"name":null,"count":3}`, false}, {`{"name":"n","count":null}`, false}, {`{"name":"n","count":"3"}`, false},
	{`{"name":"n","count":3.5}`, false}, {`{"name":"n","count":true}`, false}, {`{"name":5,"count":3}`, false},
	{`{"name":"n","count":3,"extra":1}`, false}, {`{"name":"n","count":3,"Name":"n"}`, false}, {`{"NAME":"n","count":3}`, false},
	{`{"name":"n","count":3,"kind":"c"}`, false}, {`{"name":"n","count":3,"kind":null}`, false},
	{`{"name":"n","count":3,"tags":null}`, false}, {`{"name":"n","count":3,"tags":["a","b","c"]}`, false}, {`{"name":"n","count":3,"tags":[1]}`, false},
	{`{"name":"n","count":3,"tags":"a"}`, false}, {`{"name":"n","count":3,"tags":{}}`, false},
	{`{"name":"n","count":3,"steps":[{}]}`, false}, {`{"name":"n","count":3,"steps":[["i",true]]}`, false},
	{`{"name":"n","count":3,"steps":[{"id":"i","more":1}]}`, false}, {`{"name":"n","count":3,"steps":[null]}`, false},
	{`{"name":"n","count":3,"note":null}`, false}, {`{"name":"n","count":3,"note":{}}`, false},
	{`{"name":"n","count":3,"in":null}`, false}, {`{"name":"n","count":3,"in":{}}`, false}, {`{"name":"n","count":3,"in":[]}`, false},
	{`{"name":"n","count":3,"free":[]}`, false}, {`{"name":"n","count":3,"free":null}`, false},
}

func TestDecodeAndSchemaGiveTheSameVerdict(t *testing.T) {
	t.Parallel()
	shape := ShapeOf[sample]()
	var schema jsonschema.Schema
	if err := json.Unmarshal(shape.Schema(true), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range corpus {
		v, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		var got sample
		err = shape.Decode(v, &got)
		if (err == nil) != c.ok {
			t.Errorf("%s: decoder says %v", c.text, err)
		}
		var plain any
		_ = json.Unmarshal([]byte(c.text), &plain)
		if err := resolved.Validate(plain); (err == nil) != c.ok {
			t.Errorf("%s: schema says %v", c.text, err)
		}
		if err != nil {
			continue
		}
		var want sample
		if err := json.Unmarshal([]byte(c.text), &want); err != nil {
			t.Fatal(err)
		}
		got.Free = Value{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, encoding/json has %+v", c.text, got, want)
		}
	}
}

// How a whole number may be written, which no schema can say.
func TestWholeNumbersAreWrittenInOneWay(t *testing.T) {
	t.Parallel()
	shape := ShapeOf[sample]()
	for number, ok := range map[string]bool{"3": true, "0": true, "-1": true, "9223372036854775807": true, "-9223372036854775808": true,
		"3.0": false, "3e0": false, "30E-1": false, "-0": false, "9223372036854775808": false, "-9223372036854775809": false, `"3"`: false, "1e400": false} {
		v, err := Parse([]byte(`{"name":"n","count":` + number + `}`))
		if err != nil {
			t.Fatal(err)
		}
		var got sample
		if err := shape.Decode(v, &got); (err == nil) != ok {
			t.Errorf("%s: %v", number, err)
		}
	}
}

func TestDecodeTellsAbsentFromEmpty(t *testing.T) {
	t.Parallel()
	v, _ := Parse([]byte(`{"name":"n","count":1,"note":""}`))
	var got sample
	if err := ShapeOf[sample]().Decode(v, &got); err != nil || got.Note == nil || got.In != nil || got.Tags != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFieldErrorsNameThePlaceAndRepeatNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"n","count":3,"steps":[{"id":"i"},{"id":7}]}`: "steps[1].id: it must be a string",
		`{"name":"n","count":3,"in":{"id":"i","sentinel":1}}`:  "in: there is a member that it does not have; it has id, on",
		`{"name":"n","count":3,"kind":"sentinel"}`:             "kind: it must be one of a, b",
		`{"name":"n"}`: "count: it is required",
		`{"name":"n","count":3,"sentinel":"sentinel"}`:                     "there is a member that it does not have",
		`{"name":"n","count":3,"tags":["sentinel","sentinel","sentinel"]}`: "tags: it may have at most 2 items",
		`["sentinel"]`: "it must be an object",
	} {
		v, _ := Parse([]byte(text))
		var got sample
		err := ShapeOf[sample]().Decode(v, &got)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzDecode: what the shape takes, encoding/json reads alike.
func FuzzDecode(f *testing.F) {
	for _, c := range corpus {
		f.Add([]byte(c.text))
	}
	shape := ShapeOf[sample]()
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		var got, want sample
		if shape.Decode(v, &got) != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		if err := dec.Decode(&want); err != nil {
			t.Fatal(err)
		}
		got.Free = Value{}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
