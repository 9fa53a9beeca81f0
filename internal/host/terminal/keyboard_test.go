package terminal

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/term"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

func TestParseKeys(t *testing.T) {
	for typed, want := range map[string][]Key{
		"q1":                        {'q', '1'},
		"ä\t\r\n\x03":               {'ä', KeyTab, KeyEnter, KeyEnter, KeyInterrupt},
		"\x7f\b":                    {KeyBackspace, KeyBackspace},
		"\x1b[A\x1bOB\x1b[1;5C":     {KeyUp, KeyDown, KeyRight},
		"\x1b[5~\x1b[6;2~\x1b[1~":   {KeyPageUp, KeyPageDown, KeyHome},
		"\x1b[Z\x1b[F\x1b[8~":       {KeyBackTab, KeyEnd, KeyEnd},
		"\x1b":                      {KeyEscape},
		"\x1bq":                     {KeyEscape, 'q'},
		"\x1b\x1b[A":                {KeyEscape, KeyUp},
		"\x1b[99~\x1b[xq":           {'q'},
		"\x1b[1\x01q":               {0x01, 'q'},
		"\xff\xc3":                  nil,
		"\x1b[" + "1;" + "\x1b[A":   {KeyUp},
		"\x1b[200":                  nil,
		strings.Repeat("\x1b[;", 9): nil,
	} {
		for _, split := range []bool{false, true} {
			got := keysOf([]byte(typed), split)
			assert.Check(t, slices.Equal(got, want), "%q, split %v: %q, want %q", typed, split, got, want)
		}
	}
}

// keysOf parses all at once, or as it arrives byte by byte.
func keysOf(typed []byte, split bool) (keys []Key) {
	var pending []byte
	take := func(final bool) {
		for len(pending) > 0 {
			key, n := parseKey(pending, final)
			if n == 0 {
				return
			}
			if key != 0 {
				keys = append(keys, key)
			}
			pending = pending[n:]
		}
	}
	for i := range typed {
		if pending = append(pending, typed[i]); split {
			take(false)
		}
	}
	take(false)
	take(true)
	return keys
}

// A sequence without an end is dropped, not kept.
func FuzzParseKey(f *testing.F) {
	f.Add([]byte("\x1b[1;5A"), false)
	f.Add(bytes.Repeat([]byte{'\x1b', '[', '0'}, 50), false)
	f.Fuzz(func(t *testing.T, typed []byte, final bool) {
		for len(typed) > 0 {
			_, n := parseKey(typed, final)
			assert.Assert(t, n >= 0 && n <= len(typed) && (n != 0 || !final && len(typed) <= maxSequence+3),
				"%d of %q", n, typed)
			if n == 0 {
				return
			}
			typed = typed[n:]
		}
	})
}

// Keys arrive one by one; the terminal has its mode back in the end.
func TestKeyboard(t *testing.T) {
	master, terminal := testenv.Terminal(t, 80, 24)
	before, err := term.GetState(int(terminal.Fd()))
	assert.NilError(t, err)
	keyboard, err := OpenKeyboard(terminal)
	assert.NilError(t, err)
	for _, key := range []struct {
		typed string
		want  Key
	}{{"a", 'a'}, {"\x1b[A", KeyUp}, {"\x1b", KeyEscape}, {"\x03", KeyInterrupt}, {"\r", KeyEnter}} {
		_, err := master.WriteString(key.typed)
		assert.NilError(t, err)
		got := <-keyboard.Keys()
		assert.Check(t, got == key.want, "%q: %q, want %q", key.typed, got, key.want)
	}
	_, err = master.WriteString("nobody reads this")
	assert.NilError(t, err)
	keyboard.Close()
	after, err := term.GetState(int(terminal.Fd()))
	assert.Check(t, err == nil && *after == *before, "%v, mode %v, was %v", err, after, before)
}

func TestNoKeyboard(t *testing.T) {
	keyboard, err := OpenKeyboard(strings.NewReader("q"))
	assert.Check(t, err == nil && keyboard.Keys() == nil, "%v, %v", keyboard, err)
	keyboard.Close()
}
