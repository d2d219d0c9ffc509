package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

func configChecks() []loadCheck {
	return []loadCheck{
		{"schema-roundtrip", schemaRoundtrip},
		{"schema-has-descriptions", schemaDescriptions},
		{"config-defaults", configDefaults},
		{"config-reject-unknown", configUnknown},
		{"validate-has-paths", validatePaths},
		{"validate-no-side-effects", validateNoEffects},
		{"not-configured-refused", notConfigured},
		{"reconfigure-live", reconfiguredLive},
		{"reconfigure-invalid-keeps-old", reconfiguredInvalid},
		{"shutdown-hook", shutdownHook},
		{"successor-beside-predecessor", successor},
	}
}

// defaultConfig is a block in which nothing was set.
func defaultConfig(schema *pluginv1.ConfigSchema) []byte {
	all := map[string]json.RawMessage{}
	for _, a := range schema.GetAttributes() {
		all[a.GetName()] = json.RawMessage("null")
		if d := a.GetDefaultJson(); d != "" && json.Valid([]byte(d)) {
			all[a.GetName()] = json.RawMessage(d)
		}
	}
	b, _ := json.Marshal(all) // every part is valid JSON
	return b
}

// withValue is the configuration with one attribute changed.
func (l *loader) withValue(name string, v any) []byte {
	all := map[string]any{}
	_ = json.Unmarshal(l.config, &all) // checked by config-defaults
	all[name] = v
	b, _ := json.Marshal(all)
	return b
}

// schemaRoundtrip: a host can decode HCL with the schema.
func schemaRoundtrip(_ context.Context, l *loader) error {
	seen := map[string]bool{}
	attributeName := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	for _, a := range l.describe.GetSchema().GetAttributes() {
		name := a.GetName()
		if !attributeName.MatchString(name) || seen[name] {
			return fmt.Errorf("the attribute %q is no identifier of its own", name)
		}
		seen[name] = true
		t, err := parseType(a.GetType())
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		if d := a.GetDefaultJson(); d != "" {
			if err := t.holds(json.RawMessage(d)); err != nil {
				return fmt.Errorf("attribute %s: its default: %w", name, err)
			}
			if a.GetRequired() {
				return fmt.Errorf("attribute %s is required and has a default", name)
			}
		}
		for _, v := range a.GetValidators() {
			if err := checkValidator(v); err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
		}
	}
	return nil
}

func checkValidator(v *pluginv1.Validator) error {
	switch r := v.GetRule().(type) {
	case *pluginv1.Validator_Pattern:
		_, err := regexp.Compile(r.Pattern)
		return err
	case *pluginv1.Validator_OneOf:
		if len(r.OneOf.GetValues()) == 0 {
			return errors.New("one of no values")
		}
	case *pluginv1.Validator_Range:
		if r.Range.GetMin() > r.Range.GetMax() {
			return fmt.Errorf("the range %v to %v is empty", r.Range.GetMin(), r.Range.GetMax())
		}
	case *pluginv1.Validator_Format:
		if _, known := pluginv1.Format_name[int32(r.Format)]; !known || r.Format == 0 {
			return fmt.Errorf("the format %d is not known", r.Format)
		}
	default:
		return errors.New("a validator without a rule")
	}
	return nil
}

func schemaDescriptions(_ context.Context, l *loader) error {
	for _, a := range l.describe.GetSchema().GetAttributes() {
		if len(strings.TrimSpace(a.GetDescription())) < 10 {
			return fmt.Errorf("the attribute %s is described as %q", a.GetName(), a.GetDescription())
		}
	}
	return nil
}

// validate asks, and gives only what makes a configuration unusable.
func validate(ctx context.Context, p *Process, config []byte) ([]*pluginv1.Diagnostic, error) {
	r, err := p.Plugin().Validate(ctx, &pluginv1.ValidateRequest{ConfigJson: config})
	if err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	var bad []*pluginv1.Diagnostic
	for _, d := range r.GetDiagnostics() {
		if d.GetSeverity() != pluginv1.Severity_SEVERITY_ERROR && d.GetSeverity() != pluginv1.Severity_SEVERITY_WARNING {
			return nil, fmt.Errorf("a diagnostic has the severity %v", d.GetSeverity())
		}
		if d.GetSummary() == "" {
			return nil, fmt.Errorf("a diagnostic has no summary: %v", d)
		}
		if d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR {
			bad = append(bad, d)
		}
	}
	return bad, nil
}

func configDefaults(ctx context.Context, l *loader) error {
	var values map[string]any
	if err := json.Unmarshal(l.config, &values); err != nil {
		return fmt.Errorf("the configuration is no JSON object: %w", err)
	}
	for _, a := range l.describe.GetSchema().GetAttributes() {
		if a.GetRequired() && values[a.GetName()] == nil {
			return fmt.Errorf("the attribute %s is required; give a configuration to check with", a.GetName())
		}
	}
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	bad, err := validate(ctx, p, l.config)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("the configuration is refused: %s: %s", bad[0].GetSummary(), bad[0].GetDetail())
	}
	if err != nil {
		return err
	}
	return l.configure(ctx, p, l.config)
}

const unknownAttribute = "no_such_attribute_of_any_plugin"

// configUnknown: schema and plugin must not have grown apart.
func configUnknown(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	bad, err := validate(ctx, p, l.withValue(unknownAttribute, "x"))
	if err != nil {
		return err
	}
	if len(bad) == 0 {
		return errors.New("validate accepts an attribute that the schema does not have")
	}
	return want(l.configure(ctx, p, l.withValue(unknownAttribute, "x")), "configure with an unknown attribute",
		codes.InvalidArgument, codes.FailedPrecondition)
}

// oddValues are values of an attribute's type that few plugins can use.
func oddValues(t *hclType) []any {
	switch t.word {
	case "string":
		return []any{"", " ", "\x00", "no such thing: ((", "/", "-1"}
	case "number":
		return []any{-1.0, 1e15}
	case "list", "set":
		out := []any{[]any{}}
		for _, v := range oddValues(t.elem[0]) {
			out = append(out, []any{v})
		}
		return out
	case "map":
		out := []any{map[string]any{"": "x"}, map[string]any{"a=b\x00": "x"}}
		for _, v := range oddValues(t.elem[0]) {
			out = append(out, map[string]any{"k": v})
		}
		return out
	}
	return nil
}

// permitted says whether a value passes the schema's own validators, of those
// that an odd value can pass at all.
func permitted(validators []*pluginv1.Validator, v any) bool {
	if list, ok := v.([]any); ok {
		return !slices.ContainsFunc(list, func(e any) bool { return !permitted(validators, e) })
	}
	for _, rule := range validators {
		text, isText := v.(string)
		n, isNumber := v.(float64)
		switch r := rule.GetRule().(type) {
		case *pluginv1.Validator_Pattern:
			if re, err := regexp.Compile(r.Pattern); err != nil || isText && !re.MatchString(text) {
				return false
			}
		case *pluginv1.Validator_OneOf:
			if isText && !slices.Contains(r.OneOf.GetValues(), text) {
				return false
			}
		case *pluginv1.Validator_Range:
			if isNumber && (n < r.Range.GetMin() || n > r.Range.GetMax()) {
				return false
			}
		case *pluginv1.Validator_Format:
			if isText && (r.Format != pluginv1.Format_FORMAT_ABSOLUTE_PATH || text != "/") {
				return false
			}
		}
	}
	return true
}

// validatePaths tries odd values, one attribute at a time: whatever is refused
// for one must lead the operator to it.
func validatePaths(ctx context.Context, l *loader) error {
	attributes := l.describe.GetSchema().GetAttributes()
	if len(attributes) == 0 {
		return notDeclared("the schema has no attributes")
	}
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	refused := 0
	for _, a := range attributes {
		t, err := parseType(a.GetType())
		if err != nil {
			return err
		}
		for _, v := range oddValues(t) {
			if !permitted(a.GetValidators(), v) {
				continue // the host refuses it before
			}
			bad, err := validate(ctx, p, l.withValue(a.GetName(), v))
			if err != nil {
				return err
			}
			for _, d := range bad {
				refused++
				if len(d.GetPath()) == 0 {
					return fmt.Errorf("%s = %q is refused (%s) without a path", a.GetName(), fmt.Sprint(v), d.GetSummary())
				}
				name := d.GetPath()[0].GetAttribute()
				if !slices.ContainsFunc(attributes, func(a *pluginv1.Attribute) bool { return a.GetName() == name }) {
					return fmt.Errorf("%s = %q is refused at the attribute %q, which there is not", a.GetName(), fmt.Sprint(v), name)
				}
			}
		}
	}
	if refused == 0 {
		return notDeclared("no odd value was found that it refuses")
	}
	return nil
}

// files are the names of everything that the plugin has on disk.
func (l *loader) files() (map[string]bool, error) {
	out := map[string]bool{}
	for _, dir := range []string{"state", "run"} {
		err := filepath.WalkDir(filepath.Join(l.dir, dir), func(path string, _ fs.DirEntry, err error) error {
			out[path] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func validateNoEffects(ctx context.Context, l *loader) error {
	before, err := l.files()
	if err != nil {
		return err
	}
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := validate(ctx, p, l.config); err != nil {
		return err
	}
	after, err := l.files()
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("validate has changed what is in the state and run directories: %v instead of %v", after, before)
	}
	if err != nil {
		return err
	}
	// What is validated is not in force.
	first, err := health(ctx, p)
	if err == nil && first.GetState() != pluginv1.HealthState_HEALTH_STATE_UNAVAILABLE {
		err = fmt.Errorf("after validate, before configure, its health is %v", first.GetState())
	}
	return err
}

func notConfigured(ctx context.Context, l *loader) error {
	p, err := l.launch(ctx, nil)
	if err != nil {
		return err
	}
	switch l.kind {
	case "isolation":
		_, err = pluginv1.NewIsolationClient(p.Conn).Inspect(ctx, &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}})
	case "runtime":
		_, err = pluginv1.NewRuntimeClient(p.Conn).Plan(ctx, planRequest(l.opts.Mission))
	case "policy":
		_, err = pluginv1.NewPolicyClient(p.Conn).Evaluate(ctx, (&policyKit{}).request())
	default:
		_, err = pluginv1.NewRevokerClient(p.Conn).Verify(ctx, &pluginv1.VerifyRequest{Task: &pluginv1.TaskRef{TaskId: newID(), HostId: hostID}, Grants: []string{newID()}})
	}
	return want(err, "a call before configure", codes.FailedPrecondition)
}

func reconfiguredLive(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		if err := l.configure(ctx, p, l.config); err != nil {
			return fmt.Errorf("the same configuration again: %w", err)
		}
	}
	return l.usable(ctx, p)
}

// usable says whether a configured process does its work.
func (l *loader) usable(ctx context.Context, p *Process) error {
	switch l.kind {
	case "isolation":
		_, err := pluginv1.NewIsolationClient(p.Conn).Inspect(ctx, &pluginv1.InspectRequest{Ref: &pluginv1.CellRef{CellId: newID(), Incarnation: 1}})
		return want(err, "inspect of an unknown cell", codes.NotFound)
	case "runtime":
		_, err := pluginv1.NewRuntimeClient(p.Conn).Plan(ctx, planRequest(l.opts.Mission))
		return err
	}
	_, err := p.Plugin().Describe(ctx, &pluginv1.DescribeRequest{})
	return err
}

func reconfiguredInvalid(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	before, err := health(ctx, p)
	if err != nil {
		return err
	}
	for what, config := range map[string][]byte{
		"an unknown attribute": l.withValue(unknownAttribute, "x"),
		"no object":            []byte("[]"),
		"no JSON":              []byte("{"),
	} {
		if err := want(l.configure(ctx, p, config), "configure with "+what, codes.InvalidArgument, codes.FailedPrecondition); err != nil {
			return err
		}
		if err := l.usable(ctx, p); err != nil {
			return fmt.Errorf("after a configuration that was refused for %s: %w", what, err)
		}
	}
	after, err := health(ctx, p)
	if err == nil && after.GetState() > before.GetState() { // to get well by itself is its own affair
		err = fmt.Errorf("configurations that were refused have changed its health from %v to %v", before.GetState(), after.GetState())
	}
	return err
}

func shutdownHook(ctx context.Context, l *loader) error {
	p, err := l.configured(ctx)
	if err != nil {
		return err
	}
	if _, err := p.Plugin().Shutdown(ctx, &pluginv1.ShutdownRequest{}); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	p.Kill()
	// And what it tidied up does not keep it from coming back.
	p, err = l.configured(ctx)
	if err != nil {
		return fmt.Errorf("after a shutdown: %w", err)
	}
	return l.usable(ctx, p)
}

// successor: at a reload the host configures a new process while the old one
// still answers.
func successor(ctx context.Context, l *loader) error {
	old, err := l.configured(ctx)
	if err != nil {
		return err
	}
	next, err := l.configured(ctx)
	if err != nil {
		return fmt.Errorf("a second process beside the first: %w", err)
	}
	return errors.Join(l.usable(ctx, old), l.usable(ctx, next))
}
