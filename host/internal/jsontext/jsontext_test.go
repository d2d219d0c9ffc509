package jsontext

import "testing"

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"\ud800"`: true, `"\udc00"`: true, `"\ud800\ud800"`: true, `"\ud800x"`: true, `{"\uDBFF":1}`: true,
		`"\ud83d\ude00"`: false, `"\\ud800"`: false, `"\ufffd"`: false, `"x"`: false, `"\\\ud800"`: true, `"\ud83e\\udd80"`: true, `"\u00e9"`: false,
	} {
		if got := LoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
