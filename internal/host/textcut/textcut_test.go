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
