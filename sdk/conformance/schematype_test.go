package conformance

import "testing"

func TestSchemaTypes(t *testing.T) {
	t.Parallel()
	for text, values := range map[string]map[string]bool{
		"string":                       {`"x"`: true, `1`: false, `null`: true, `[]`: false},
		"list(number)":                 {`[1,2]`: true, `["x"]`: false, `{}`: false, `[]`: true},
		"map(bool)":                    {`{"a":true}`: true, `{"a":1}`: false},
		"set( string )":                {`["a"]`: true},
		"tuple([string, number])":      {`["a",1]`: true, `["a"]`: false, `[1,"a"]`: false},
		"object({a=string, b=number})": {`{"a":"x","b":1}`: true, `{"a":"x"}`: false, `{"a":"x","b":1,"c":1}`: false},
		"object({a=optional(string)})": {`{}`: true, `{"a":1}`: false},
		"list(object({a=list(bool)}))": {`[{"a":[true]}]`: true, `[{"a":true}]`: false},
		`object({a=optional(list(string), ["x"]), b=bool})`: {`{"b":true}`: true, `{"a":["y"]}`: false},
		"any": {`{"x":[1]}`: true},
	} {
		typ, err := parseType(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for raw, good := range values {
			if err := typ.holds([]byte(raw)); (err == nil) != good {
				t.Errorf("%s of type %s: %v", raw, text, err)
			}
		}
	}
	for _, bad := range []string{"", "strings", "list", "list()", "list(string", "object(a=string)", "object({a})", "string string", "map(string) x"} {
		if _, err := parseType(bad); err == nil {
			t.Errorf("%q is taken for a type", bad)
		}
	}
}
