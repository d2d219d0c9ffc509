package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// DecodeConfig reads a config object into a struct with json tags. An
// attribute without a field is an error, since schema and struct have then
// grown apart.
func DecodeConfig(config []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(config))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return InvalidArgument("config does not fit the plugin: %v", err)
	}
	return nil
}

// Problem is a diagnostic that makes a configuration unusable. The path leads
// from an attribute downwards; see Path.
func Problem(path []*pluginv1.PathStep, summary, detail string) *pluginv1.Diagnostic {
	return &pluginv1.Diagnostic{
		Severity: pluginv1.Severity_SEVERITY_ERROR, Path: path, Summary: summary, Detail: detail,
	}
}

// Warning is a diagnostic that the operator should know, no more.
func Warning(path []*pluginv1.PathStep, summary, detail string) *pluginv1.Diagnostic {
	return &pluginv1.Diagnostic{
		Severity: pluginv1.Severity_SEVERITY_WARNING, Path: path, Summary: summary, Detail: detail,
	}
}

// Path is a path into a configuration: a string names an attribute, an int an
// element of a list, a MapKey an element of a map. Path("mounts", 2, "source")
// is the attribute source of the third mount.
func Path(steps ...any) []*pluginv1.PathStep {
	path := make([]*pluginv1.PathStep, 0, len(steps))
	for _, step := range steps {
		switch s := step.(type) {
		case string:
			path = append(path, &pluginv1.PathStep{Step: &pluginv1.PathStep_Attribute{Attribute: s}})
		case int:
			path = append(path, &pluginv1.PathStep{Step: &pluginv1.PathStep_Index{Index: int64(s)}})
		case MapKey:
			path = append(path, &pluginv1.PathStep{Step: &pluginv1.PathStep_Key{Key: string(s)}})
		default:
			panic(fmt.Sprintf("plugin: a path step of type %T", step))
		}
	}
	return path
}

// MapKey is a step into a map; see Path.
type MapKey string
