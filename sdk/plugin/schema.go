package plugin

import (
	"encoding/json"
	"fmt"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// Schema is a config schema with these attributes. An attribute that is not in
// it is refused by the host, with its line.
func Schema(attributes ...*pluginv1.Attribute) *pluginv1.ConfigSchema {
	return &pluginv1.ConfigSchema{Attributes: attributes}
}

// AttributeOption changes an attribute.
type AttributeOption func(*pluginv1.Attribute)

// Attribute is an attribute of any HCL type, for example
// "object({name=string, size=number})". The description must not be empty; it
// becomes the reference documentation.
func Attribute(name, hclType, description string, options ...AttributeOption) *pluginv1.Attribute {
	a := &pluginv1.Attribute{Name: name, Type: hclType, Description: description}
	for _, option := range options {
		option(a)
	}
	return a
}

// String is an attribute of type string.
func String(name, description string, options ...AttributeOption) *pluginv1.Attribute {
	return Attribute(name, "string", description, options...)
}

// Number is an attribute of type number.
func Number(name, description string, options ...AttributeOption) *pluginv1.Attribute {
	return Attribute(name, "number", description, options...)
}

// Bool is an attribute of type bool.
func Bool(name, description string, options ...AttributeOption) *pluginv1.Attribute {
	return Attribute(name, "bool", description, options...)
}

// StringList is an attribute of type list(string).
func StringList(name, description string, options ...AttributeOption) *pluginv1.Attribute {
	return Attribute(name, "list(string)", description, options...)
}

// StringMap is an attribute of type map(string).
func StringMap(name, description string, options ...AttributeOption) *pluginv1.Attribute {
	return Attribute(name, "map(string)", description, options...)
}

// Required refuses a configuration without the attribute.
func Required() AttributeOption {
	return func(a *pluginv1.Attribute) { a.Required = true }
}

// Sensitive keeps the value out of every log and status.
func Sensitive() AttributeOption {
	return func(a *pluginv1.Attribute) { a.Sensitive = true }
}

// Default is the value when the attribute is left out or null. It panics on a
// value that is not JSON, which is a mistake in the plugin's source.
func Default(value any) AttributeOption {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("plugin: default of a schema attribute: %v", err))
	}
	return func(a *pluginv1.Attribute) { a.DefaultJson = string(data) }
}

// Pattern wants the string to match an RE2 expression.
func Pattern(expression string) AttributeOption {
	return validator(&pluginv1.Validator{Rule: &pluginv1.Validator_Pattern{Pattern: expression}})
}

// OneOf wants the string to be one of these.
func OneOf(values ...string) AttributeOption {
	return validator(&pluginv1.Validator{Rule: &pluginv1.Validator_OneOf{OneOf: &pluginv1.StringList{Values: values}}})
}

// Range wants the number to lie between min and max, ends included.
func Range(min, max float64) AttributeOption {
	return validator(&pluginv1.Validator{Rule: &pluginv1.Validator_Range{Range: &pluginv1.Range{Min: min, Max: max}}})
}

// Duration wants a Go duration such as "1m30s".
func Duration() AttributeOption { return format(pluginv1.Format_FORMAT_DURATION) }

// Size wants a size such as "512MiB".
func Size() AttributeOption { return format(pluginv1.Format_FORMAT_SIZE) }

// AbsolutePath wants an absolute path.
func AbsolutePath() AttributeOption { return format(pluginv1.Format_FORMAT_ABSOLUTE_PATH) }

// URL wants an http or https URL with a host.
func URL() AttributeOption { return format(pluginv1.Format_FORMAT_URL) }

func format(f pluginv1.Format) AttributeOption {
	return validator(&pluginv1.Validator{Rule: &pluginv1.Validator_Format{Format: f}})
}

func validator(v *pluginv1.Validator) AttributeOption {
	return func(a *pluginv1.Attribute) { a.Validators = append(a.Validators, v) }
}
