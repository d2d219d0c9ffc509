package pointer

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][]string{
		"/amount": {"amount"}, "/a/b": {"a", "b"}, "/": {""}, "/a//b": {"a", "", "b"}, "/a~1b/~0": {"a/b", "~"}, "/~01": {"~1"}, "/0": {"0"}, "/ é": {" é"},
	} {
		p, err := Parse(s)
		if err != nil || !reflect.DeepEqual(p.Tokens(), want) || p.String() != s {
			t.Errorf("%q: %q, %v", s, p.Tokens(), err)
		}
	}
	for _, s := range []string{"", "amount", "#/a", "/~", "/a~2", "/~a", strings.Repeat("/a", maxTokens+1), "/" + strings.Repeat("a", maxPointer)} {
		if _, err := Parse(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	for token, want := range map[string]int{"0": 0, "12": 12, "": -1, "01": -1, "-": -1, "-1": -1, "+1": -1, "1a": -1, "1234567890": -1} {
		if n, ok := Index(token); ok != (want >= 0) || ok && n != want {
			t.Errorf("index %q: %d, %v", token, n, ok)
		}
	}
}
