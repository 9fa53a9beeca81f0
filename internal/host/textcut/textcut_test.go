package textcut

import (
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

func TestAt(t *testing.T) {
	const all = "aé€😀"
	for n, want := range []string{"", "a", "a", "aé", "aé", "aé", "aé€", "aé€", "aé€", "aé€", all, all} {
		got := At(all, n)
		assert.Check(t, got == want && utf8.ValidString(got), "%d bytes: %q, want %q", n, got, want)
		if got := At([]byte(all), n); string(got) != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	if got := At("a\x80\x80\x80\x80\x80", 5); got != "a\x80\x80\x80\x80" { // nor does it look back further
		t.Errorf("%q", got)
	}
	for n := range 9 { // no character begins in it
		got := At("\x80\x80\x80\x80\x80\x80\x80\x80", n)
		assert.Check(t, len(got) == n, "%d bytes: %q", n, got)
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "abc": "abc", "abcdefgh": "abcdef", "abcdé": "abcdé", "abcdeé": "abcde",
		"a\xffb": "a\uFFFDb", "abcd\xff\xff": "abcd", "\xff\xffa\xff": "\uFFFDa", "abcdef\xff": "abcdef",
	} {
		got := Clean(text, 6)
		assert.Check(t, got == want, "%q is %q, want %q", text, got, want)
	}
}
