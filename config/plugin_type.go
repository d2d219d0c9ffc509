package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// schemaType reads a type of a plugin's schema: HCL's type syntax, any and
// optional(…) in objects included.
func schemaType(text string) (cty.Type, *typeexpr.Defaults, error) {
	if text == "" || len(text) > 4096 || checkText("type", []byte(text)).HasErrors() {
		return cty.NilType, nil, errors.New("its type is missing or too long")
	}
	expr, diags := hclsyntax.ParseExpression([]byte(text), "type", hcl.InitialPos)
	if diags.HasErrors() {
		return cty.NilType, nil, fmt.Errorf("its type %s is not one of HCL's", quote(clean(text)))
	}
	ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(expr)
	if diags.HasErrors() {
		return cty.NilType, nil, fmt.Errorf("its type %s is not one of HCL's", quote(clean(text)))
	}
	return ty, defaults, nil
}

// extraKey finds an attribute of val that its type does not have; conversion
// would drop it without a word.
func extraKey(val cty.Value, ty cty.Type, path cty.Path) (at cty.Path, name string, known []string) {
	if val.IsNull() || !val.IsKnown() {
		return nil, "", nil
	}
	children := func(elem func(cty.Value) cty.Type) (cty.Path, string, []string) {
		if !val.CanIterateElements() {
			return nil, "", nil
		}
		for it := val.ElementIterator(); it.Next(); {
			k, v := it.Element()
			if at, name, known := extraKey(v, elem(k), append(path.Copy(), cty.IndexStep{Key: k})); name != "" {
				return at, name, known
			}
		}
		return nil, "", nil
	}
	switch {
	case ty.IsObjectType() && (val.Type().IsObjectType() || val.Type().IsMapType()):
		attrs := ty.AttributeTypes()
		for it := val.ElementIterator(); it.Next(); {
			k, _ := it.Element()
			if _, ok := attrs[k.AsString()]; !ok {
				return path, k.AsString(), sortedKeys(attrs)
			}
		}
		return children(func(k cty.Value) cty.Type { return attrs[k.AsString()] })
	case ty.IsTupleType() && val.Type().IsTupleType():
		elems := ty.TupleElementTypes()
		if len(elems) != val.LengthInt() {
			return nil, "", nil
		}
		return children(func(k cty.Value) cty.Type { i, _ := k.AsBigFloat().Int64(); return elems[i] })
	case ty.IsCollectionType():
		return children(func(cty.Value) cty.Type { return ty.ElementType() })
	}
	return nil, "", nil
}

// mismatch is the smallest written part of expr whose value does not convert to
// its part of ty. cty says it in words only.
func mismatch(expr hclsyntax.Expression, val cty.Value, ty cty.Type) hcl.Range {
	if val.IsNull() || !val.IsKnown() || !val.CanIterateElements() {
		return expr.Range()
	}
	for it := val.ElementIterator(); it.Next(); {
		k, v := it.Element()
		var elem cty.Type
		switch {
		case ty.IsCollectionType():
			elem = ty.ElementType()
		case ty.IsObjectType() && k.Type() == cty.String && ty.HasAttribute(k.AsString()):
			elem = ty.AttributeType(k.AsString())
		default:
			continue
		}
		if _, err := convert.Convert(v, elem); err == nil {
			continue
		}
		if next := stepInto(expr, cty.IndexStep{Key: k}); next != nil {
			return mismatch(next, v, elem)
		}
	}
	return expr.Range()
}

// concrete is ty, or for `any` the type that the JSON text implies.
func concrete(ty cty.Type, text string) cty.Type {
	if !ty.HasDynamicTypes() {
		return ty
	}
	if implied, err := ctyjson.ImpliedType([]byte(text)); err == nil {
		return implied
	}
	return ty
}

// marshalValue writes a value as plain JSON, without the type wrappers that cty
// adds for `any`.
func marshalValue(val cty.Value, ty cty.Type) (json.RawMessage, error) {
	if ty.HasDynamicTypes() {
		ty = val.Type()
	}
	return ctyjson.Marshal(val, ty)
}
