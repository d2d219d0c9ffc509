package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// sensitive marks every value that came from secret().
const sensitive = valueMark("sensitive")

// unreadable marks the null that stands for a secret which could not be read
// while a configuration is only validated.
const unreadable valueMark = "unreadable"

type valueMark string

// evaluator makes the evaluation contexts of one configuration. env() and
// secret() are the only functions that read the outside.
type evaluator struct {
	opts Options
}

// context is what expressions are evaluated in. lenient: a secret that is out of
// reach is null instead of an error.
func (e *evaluator) context(lenient bool) *hcl.EvalContext {
	return &hcl.EvalContext{Functions: map[string]function.Function{
		"env":    e.envFunction(),
		"secret": e.secretFunction(lenient),
	}}
}

// EvalContext is what the plugins' config blocks are evaluated in.
func (c *Config) EvalContext() *hcl.EvalContext { return c.evaluator().context(false) }

// LenientEvalContext is EvalContext for validation as a user that may not read
// the secrets, or in an environment without them: those are null, required all
// the same is satisfied, and a warning says so. A file that is not there or that
// the host would refuse is an error as it is for the host.
func (c *Config) LenientEvalContext() *hcl.EvalContext { return c.evaluator().context(true) }

// evaluator is the configuration's, or one over the real outside for a Config
// that was not loaded but made.
func (c *Config) evaluator() *evaluator {
	if c.eval == nil {
		return &evaluator{opts: Options{}.withDefaults()}
	}
	return c.eval
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

func (e *evaluator) envFunction() function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String, AllowMarked: true}},
		VarParam: &function.Parameter{Name: "default", Type: cty.String, AllowMarked: true, AllowNull: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if len(args) > 2 {
				return cty.NilVal, function.NewArgErrorf(2, "env takes a name and at most one default")
			}
			if args[0].IsMarked() {
				return cty.NilVal, function.NewArgErrorf(0, "a secret cannot name an environment variable")
			}
			name := args[0].AsString()
			if !envName.MatchString(name) {
				return cty.NilVal, function.NewArgErrorf(0, "not a name of an environment variable")
			}
			if v, ok := e.opts.LookupEnv(name); ok {
				if !utf8.ValidString(v) {
					return cty.NilVal, fmt.Errorf("the value of environment variable %s is not UTF-8", name)
				}
				return cty.StringVal(v), nil
			}
			if len(args) == 2 {
				return args[1], nil
			}
			return cty.NullVal(cty.String), nil
		},
	})
}

func (e *evaluator) secretFunction(lenient bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "source", Type: cty.String, AllowMarked: true}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if args[0].IsMarked() {
				return cty.NilVal, function.NewArgErrorf(0, "a secret cannot say where another one is")
			}
			v, err := e.secret(args[0].AsString())
			if err != nil {
				if lenient && outOfReach(err) {
					return cty.NullVal(cty.String).WithMarks(cty.NewValueMarks(sensitive, unreadable)), nil
				}
				return cty.NilVal, err
			}
			return cty.StringVal(v).Mark(sensitive), nil
		},
	})
}

// outOfReach says that a secret may well be there for the host, and is not for
// this user or in this environment.
func outOfReach(err error) bool {
	var unset notSet
	return errors.Is(err, fs.ErrPermission) || errors.As(err, &unset)
}

// notSet is an environment variable that is not there.
type notSet string

func (n notSet) Error() string { return fmt.Sprintf("environment variable %s is not set", string(n)) }

// badSource is an error in the argument of secret(), not in the outside.
type badSource string

func (b badSource) Error() string { return string(b) }

// secret reads "file:PATH" or "env:NAME". One newline at the end is not part of
// the secret. No error names any part of the value.
func (e *evaluator) secret(source string) (string, error) {
	var value string
	switch {
	case strings.HasPrefix(source, "file:/"):
		path := strings.TrimPrefix(source, "file:")
		b, err := e.opts.ReadSecret(path)
		if err != nil {
			return "", fmt.Errorf("secret file %s: %w", path, pathless(err))
		}
		value = trimNewline(string(b))
	case strings.HasPrefix(source, "env:") && envName.MatchString(source[len("env:"):]):
		name := strings.TrimPrefix(source, "env:")
		v, ok := e.opts.LookupEnv(name)
		if !ok {
			return "", notSet(name)
		}
		value = v
	default:
		return "", badSource(`say where the secret is: secret("file:/absolute/path") or secret("env:NAME")`)
	}
	switch {
	case value == "":
		return "", fmt.Errorf("the secret %s is empty", source)
	case !utf8.ValidString(value):
		return "", fmt.Errorf("the secret %s is not text in UTF-8", source)
	case cty.StringVal(value).AsString() != value:
		// cty normalises strings; a changed secret would be refused by its issuer
		// with no hint why.
		return "", fmt.Errorf("the secret %s is not in Unicode normal form C", source)
	}
	return value, nil
}

func trimNewline(s string) string {
	return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
}
