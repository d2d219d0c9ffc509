package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	pluginv1 "github.com/airlock-host/airlock/proto/airlock/plugin/v1"
)

// validateValue applies a schema's validators: to the value, or to each element
// of a list, set or map.
func validateValue(attr *pluginv1.Attribute, expr hclsyntax.Expression, val cty.Value) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, v := range attr.GetValidators() {
		if val.Type().IsCollectionType() || val.Type().IsTupleType() {
			for it := val.ElementIterator(); it.Next(); {
				k, e := it.Element()
				rng, _ := rangeAt(expr, cty.Path{cty.IndexStep{Key: k}})
				diags = append(diags, validateOne(attr, v, e, rng)...)
			}
			continue
		}
		diags = append(diags, validateOne(attr, v, val, expr.Range())...)
	}
	return diags
}

func validateOne(attr *pluginv1.Attribute, v *pluginv1.Validator, val cty.Value, rng hcl.Range) hcl.Diagnostics {
	if val.IsNull() {
		return hcl.Diagnostics{errorAt(rng, "Bad value", "The attribute %q: an element must not be null.", attr.GetName())}
	}
	err := check(v, val, attr.GetSensitive())
	if err == nil {
		return nil
	}
	return hcl.Diagnostics{errorAt(rng, "Bad value", "%s", sentence(fmt.Sprintf("The attribute %q: %s", attr.GetName(), err)))}
}

// check is one validator on one value. The value of a sensitive attribute is in
// no text.
func check(v *pluginv1.Validator, val cty.Value, sensitive bool) error {
	shown := "the value"
	if val.Type() == cty.String && !sensitive {
		shown = quote(val.AsString())
	}
	switch r := v.GetRule().(type) {
	case *pluginv1.Validator_Range:
		if val.Type() != cty.Number {
			return fmt.Errorf("the plugin's schema has a range for something that is no number")
		}
		if f, _ := val.AsBigFloat().Float64(); f < r.Range.GetMin() || f > r.Range.GetMax() {
			return fmt.Errorf("must be from %g to %g", r.Range.GetMin(), r.Range.GetMax())
		}
		return nil
	case nil:
		return fmt.Errorf("the plugin's schema has a check that this version of Airlock does not know")
	}
	if val.Type() != cty.String {
		return fmt.Errorf("the plugin's schema has a check of text for something that is no text")
	}
	s := val.AsString()
	switch r := v.GetRule().(type) {
	case *pluginv1.Validator_Pattern:
		re, err := regexp.Compile(r.Pattern)
		if err != nil {
			return fmt.Errorf("the plugin's schema has a pattern that does not compile")
		}
		if !re.MatchString(s) {
			return fmt.Errorf("%s does not match %s", shown, quote(clean(r.Pattern)))
		}
	case *pluginv1.Validator_OneOf:
		if values := r.OneOf.GetValues(); !slices.Contains(values, s) {
			quoted := make([]string, len(values))
			for i, v := range values {
				quoted[i] = quote(clean(v))
			}
			hint := ""
			if !sensitive {
				hint = didYouMean(s, values)
			}
			return fmt.Errorf("%s is not one of %s%s", shown, strings.Join(quoted, ", "), hint)
		}
	case *pluginv1.Validator_Format:
		return checkFormat(r.Format, s, shown)
	}
	return nil
}

func checkFormat(f pluginv1.Format, s, shown string) error {
	switch f {
	case pluginv1.Format_FORMAT_DURATION:
		if d, err := time.ParseDuration(s); err != nil || d < 0 {
			return fmt.Errorf(`%s is not a duration such as "1m30s"`, shown)
		}
	case pluginv1.Format_FORMAT_SIZE:
		if _, err := ParseSize(s); err != nil {
			return err
		}
	case pluginv1.Format_FORMAT_ABSOLUTE_PATH:
		if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("%s is not an absolute path", shown)
		}
	case pluginv1.Format_FORMAT_URL:
		// A URL may carry a query here, and that is the plugin's business.
		base, _, _ := strings.Cut(s, "?")
		if err := httpURL(base); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the plugin's schema has a format that this version of Airlock does not know")
	}
	return nil
}
