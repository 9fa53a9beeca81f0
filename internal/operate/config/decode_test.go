package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// testOptions has a setting of each type that a flag may have.
type testOptions struct {
	File
	PrintConfig bool `key:"print-config" env:"-"`
	Numbers     struct {
		Rate  int           `key:"rate"`
		Delay time.Duration `key:"delay"`
	} `group:"Numbers"`
	Others struct {
		Loud bool     `key:"loud"`
		Name string   `key:"name"`
		Only Patterns `key:"only"`
	} `group:"Others"`
}

func newTestOptions() (*testOptions, *Settings) {
	o := &testOptions{}
	o.Numbers.Rate, o.Numbers.Delay = 20, 300*time.Millisecond
	return o, NewSettings(o)
}

// fileSettings are those that can be keys of a file.
func fileSettings() *Settings {
	_, s := newTestOptions()
	s.fields = s.fields[2:]
	return s
}

// values returns the settings that were given, with their sources, in the order of the fields.
func values(s *Settings) (all []string) {
	for i := range s.fields {
		if f := &s.fields[i]; s.Given(f.key) {
			value := text(f.value)
			if l, ok := settable(f.value).(list); ok {
				value = fmt.Sprintf("%q", l.texts())
			}
			all = append(all, f.key+"="+value+" "+s.sources[f.key].String())
		}
	}
	return all
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // key=value source, in the order of the fields
	}{
		{"", ""},
		{"---\n", ""},
		{"# nothing\n\n# at all\n", ""},
		{"\ufeffrate: 5\n", "rate=5 f:1"},
		{"rate: 5\n", "rate=5 f:1"},
		{"rate: 0x10\n...\n", "rate=16 f:1"},
		{"{rate: -1, loud: True}\n", "rate=-1 f:1|loud=true f:1"},
		{"# first\n\ndelay: 1m30s # why\nloud: true\n", "delay=1m30s f:3|loud=true f:4"},
		{"delay: \"2s\"\n", "delay=2s f:1"},
		{"name: \"\"\n", "name= f:1"},
		{"name: '12'\n", "name=12 f:1"},
		{"name: !!str 12\n", "name=12 f:1"},
		{"name: yes\n", "name=yes f:1"},
		{"name: a b # c\n", "name=a b f:1"},
		{"only: [a, \"b,c\"]\n", `only=["a" "b,c"] f:1`},
		{"only:\n- a\n- '.*b'\n", `only=["a" ".*b"] f:1`},
		{"only: a\n", `only=["a"] f:1`},
		{"only: []\n", "only=[] f:1"},
	} {
		s := fileSettings()
		assert.Check(t, s.decode("f", []byte(c.text)), "%q", c.text)
		got := strings.Join(values(s), "|")
		assert.Check(t, got == c.want, "%q: %q, want %q", c.text, got, c.want)
	}
}

func TestDecodeWrong(t *testing.T) {
	for text, want := range map[string]string{
		"rate: \"5\"\n":               `f:1: rate: the text "5" is not a whole number, as in 20`,
		"rate: 1e3\n":                 "f:1: rate: 1e3 is not a whole number, as in 20",
		"\nrate: [5]\n":               "f:2: rate: a list, where one value is wanted",
		"rate:\n  a: b\n":             "f:2: rate: a mapping, where one value is wanted",
		"rate:\n":                     `f:1: rate: no value; the empty text is ""`,
		"rate: ~\n":                   `f:1: rate: no value; the empty text is ""`,
		"loud: yes\n":                 `f:1: loud: the text "yes" is neither true nor false`,
		"loud: 1\n":                   "f:1: loud: 1 is neither true nor false",
		"delay: 300\n":                "f:1: delay: 300 is a duration without unit, as in 300ms, 30s or 1m",
		"delay: \"300\"\n":            `f:1: delay: the text "300" is a duration without unit, as in 300ms, 30s or 1m`,
		"rate: 9223372036854775808\n": "f:1: rate: 9223372036854775808 is too large a number",
		"https://u:s3cret@h: 5\n":     "f:1: unknown key",
		"only: '('\n":                 "f:1: only: error parsing regexp: missing closing ): `(`",
		"delay: soon\n":               `f:1: delay: the text "soon" is not a duration, as in 300ms, 30s or 1m`,
		"name: 12\n":                  "f:1: name: 12 is not a text: it needs quotes",
		"name: true\n":                "f:1: name: true is not a text: it needs quotes",
		"name: 2024-01-01\n":          "f:1: name: 2024-01-01 is not a text: it needs quotes",
		"name: !!binary aGk=\n":       "f:1: name: aGk= is not a text: it needs quotes",
		"only:\n- a\n- 1\n":           "f:3: only: 1 is not a text: it needs quotes",
		"only:\n- a\n- [b]\n":         "f:3: only: a list, where one value is wanted",
		"only: {a: b}\n":              "f:1: only: a mapping, where one value is wanted",
		"rate: 5\n\nrate: 6\n":        "f:3: rate is set for the second time, after line 1",
		"name: &n a\nonly: *n\n": "f:1: anchors and aliases are not read; a text that begins with & or * needs " +
			"quotes",
		"&a rate: 5\n": "f:1: anchors and aliases are not read; a text that begins with & or * needs " +
			"quotes",
		"only: *.b\n":             "f: did not find expected alphabetic or numeric character",
		"rate: 5\nonly: *b\n":     "f:2: an alias of no anchor; a text that begins with * needs quotes",
		"rate: 5\n---\nrate: 6\n": "f:2: a second document begins: only one is read",
		"rate: 5\n---\n}\n":       "f:2: did not find expected node content",
		"- rate\n":                "f:1: not a mapping: each line is a key, a colon, a space and a value",
		"rate\n":                  "f:1: not a mapping: each line is a key, a colon, a space and a value",
		"5: rate\n":               "f:1: a key that is no text",
		"? [rate]\n: 5\n":         "f:1: a key that is no text",
		"<<: {rate: 5}\n":         "f:1: a key that is no text",
		"~: 5\n":                  "f:1: a key that is no text",
		"name: a\n  rate: 5\n":    "f:2: mapping values are not allowed in this context",
		"name: \"a\xff\"\n":       "f: invalid leading UTF-8 octet",
		"Rate: 5\n":               `f:1: unknown key "Rate"; did you mean rate?`,
		"banana: 5\n":             `f:1: unknown key "banana"`,
		"config: other\n":         `f:1: unknown key "config"`,
		"print-config: true\n":    `f:1: unknown key "print-config"`,
		"help: true\n":            `f:1: unknown key "help"`,
		"rat: 5\nrate: a\nloud: b\n": "f:1: unknown key \"rat\"; did you mean rate?\nf:2: rate: the text \"a\" is " +
			"not a whole number, as in 20\nf:3: loud: the text \"b\" is neither true nor false",
	} {
		err := fileSettings().decode("f", []byte(text))
		assert.Check(t, err != nil && err.Error() == want, "%q:\n%v\nwant\n%v", text, err, want)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	assert.NilError(t, os.WriteFile(large, []byte(strings.Repeat("#", maxFileBytes)), 0o600))
	content, err := readFile(large)
	assert.Check(t, err == nil && len(content) == maxFileBytes, "%v %v", len(content), err)
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file or directory",
		dir:                           "is a directory",
		"/dev/zero":                   "more than 1048576 bytes are no configuration",
	} {
		_, err := readFile(path)
		assert.Check(t, err != nil && err.Error() == want, err)
	}
}

// Whatever a file says, what Print makes of it says the same.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"", "rate: 5\nloud: true\n", "only: [a, 'b: #', \"\\n\\x00\\uFFFE\"]\nname: \" x\"\n", "name: |\n  a\n  b\n",
		"name: ''\ndelay: 1ns\n", "rate: &a 5\nname: *a\n", "only: *\n", "? ? a\n", "<<: {}\n", "--- !!map {name: " +
			"!!str 1}\n",
		"name: \"\\u2028\\u0085\\ufeff\U0001F600\"\n", "[[[[[[", "a: {b: [", "%YAML 1.1\n---\nname: 0o7\n", "rate: " +
			"1_0\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := fileSettings()
		if s.decode("f", text) != nil {
			return
		}
		var out strings.Builder
		assert.NilError(t, s.print(&out, s.fields))
		again := fileSettings()
		assert.NilError(t, again.decode("f", []byte(out.String())), "\n%s", &out)
		for i, f := range s.fields {
			got := again.fields[i].value.Interface()
			assert.Check(t, fmt.Sprintf("%q", got) == fmt.Sprintf("%q", f.value.Interface()),
				"%s is %q, want %q:\n%s", f.key, got, f.value, &out)
			assert.Check(t, again.Given(f.key), "%s is not printed", f.key)
		}
	})
}
