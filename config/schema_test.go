package config

import (
	"encoding/json"
	"testing"
)

func TestJSONSchemaHasEveryAttribute(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(JSONSchema())
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, b *blockSpec, s map[string]any)
	walk = func(path string, b *blockSpec, s map[string]any) {
		for range b.labels {
			s, _ = s["additionalProperties"].(map[string]any)
		}
		if b.plugin {
			return
		}
		if s["additionalProperties"] != false {
			t.Errorf("%s takes unknown names", path)
		}
		props, _ := s["properties"].(map[string]any)
		for _, a := range b.attrs {
			p, _ := props[a.name].(map[string]any)
			if p["type"] == nil || p["description"] != a.doc || p["x-airlock-reload"] == "" {
				t.Errorf("%s.%s: %v", path, a.name, p)
			}
		}
		for _, c := range b.blocks {
			sub, _ := props[c.name].(map[string]any)
			walk(path+"."+c.name, c, sub)
		}
	}
	walk("", rootSpec(), root)
	mode := root["properties"].(map[string]any)["governance"].(map[string]any)["properties"].(map[string]any)["mode"].(map[string]any)
	if got, _ := json.Marshal(mode["enum"]); string(got) != `["govern","observe"]` {
		t.Errorf("governance.mode: %s", got)
	}
}
