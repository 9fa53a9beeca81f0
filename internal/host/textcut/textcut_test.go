package textcut

import (
	"testing"
	"unicode/utf8"
)

func TestAt(t *testing.T) {
	const all = "aé€😀"
	for n, want := range []string{"", "a", "a", "aé", "aé", "aé", "aé€", "aé€", "aé€", "aé€", all, all} {
		if got := At(all, n); got != want || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
		if got := At([]byte(all), n); string(got) != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	if got := At("a\x80\x80\x80\x80\x80", 5); got != "a\x80\x80\x80\x80" { // nor does it look back further
		t.Errorf("%q", got)
	}
	for n := range 9 { // no character begins in it
		if got := At("\x80\x80\x80\x80\x80\x80\x80\x80", n); len(got) != n {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}
