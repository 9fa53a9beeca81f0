package settings

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// newFlags has a flag of each type.
func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.String(Config, "", "`path` of settings")
	flags.Bool(PrintConfig, false, "show")
	flags.BoolP("help", "h", false, "this")
	Group(flags, "Numbers", func(flags *pflag.FlagSet) {
		flags.Int("rate", 20, "`how` often (default: often)")
		flags.Duration("delay", 300*time.Millisecond, "how long it may take at most")
	})
	Group(flags, "Others", func(flags *pflag.FlagSet) {
		flags.Bool("loud", false, "not quiet")
		flags.String("name", "", "`text` that is a name")
		flags.StringArray("only", nil, "each a `regexp`")
	})
	return flags
}

// values are the settings that are not as by default, with their origins.
func values(t *testing.T, flags *pflag.FlagSet) map[string]string {
	t.Helper()
	got := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			got[f.Name] = f.Value.String() + " " + originOf(f)
		}
	})
	return got
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // name=value origin, in the order of the flags
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
		{"only: [a, \"b,c\"]\n", `only=[a,"b,c"] f:1`},
		{"only:\n- a\n- '*.b'\n", "only=[a,*.b] f:1"},
		{"only: a\n", "only=[a] f:1"},
		{"only: []\n", "only=[] f:1"},
	} {
		flags := newFlags()
		if err := decode("f", []byte(c.text), Keys(newFlags(), flags)); err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		var got []string
		flags.VisitAll(func(f *pflag.Flag) {
			if v, ok := values(t, flags)[f.Name]; ok {
				got = append(got, f.Name+"="+v)
			}
		})
		if strings.Join(got, "|") != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestDecodeWrong(t *testing.T) {
	for text, want := range map[string]string{
		"rate: \"5\"\n":              `f:1: rate: the text "5" is not a whole number`,
		"rate: 1e3\n":                "f:1: rate: 1e3 is not a whole number",
		"\nrate: [5]\n":              "f:2: rate: a list, where one value is wanted",
		"rate:\n  a: b\n":            "f:2: rate: a mapping, where one value is wanted",
		"rate:\n":                    `f:1: rate: no value; the empty text is ""`,
		"rate: ~\n":                  `f:1: rate: no value; the empty text is ""`,
		"loud: yes\n":                `f:1: loud: the text "yes" is neither true nor false`,
		"loud: 1\n":                  "f:1: loud: 1 is neither true nor false",
		"delay: 300\n":               "f:1: delay: 300 is a duration without unit, as in 300ms, 30s or 1m",
		"delay: soon\n":              `f:1: delay: time: invalid duration "soon"`,
		"name: 12\n":                 "f:1: name: 12 is not a text: it needs quotes",
		"name: true\n":               "f:1: name: true is not a text: it needs quotes",
		"name: 2024-01-01\n":         "f:1: name: 2024-01-01 is not a text: it needs quotes",
		"name: !!binary aGk=\n":      "f:1: name: aGk= is not a text: it needs quotes",
		"only:\n- a\n- 1\n":          "f:3: only: 1 is not a text: it needs quotes",
		"only:\n- a\n- [b]\n":        "f:3: only: a list, where one value is wanted",
		"only: {a: b}\n":             "f:1: only: a mapping, where one value is wanted",
		"rate: 5\n\nrate: 6\n":       "f:3: rate is set for the second time, after line 1",
		"name: &n a\nonly: *n\n":     "f:1: anchors and aliases are not read; a text that begins with & or * needs quotes",
		"&a rate: 5\n":               "f:1: anchors and aliases are not read; a text that begins with & or * needs quotes",
		"only: *.b\n":                "f: did not find expected alphabetic or numeric character",
		"rate: 5\nonly: *b\n":        "f:2: an alias of no anchor; a text that begins with * needs quotes",
		"rate: 5\n---\nrate: 6\n":    "f:2: a second document begins: only one is read",
		"rate: 5\n---\n}\n":          "f:2: did not find expected node content",
		"- rate\n":                   "f:1: not a mapping: each line is a key, a colon, a space and a value",
		"rate\n":                     "f:1: not a mapping: each line is a key, a colon, a space and a value",
		"5: rate\n":                  "f:1: a key that is no text",
		"? [rate]\n: 5\n":            "f:1: a key that is no text",
		"<<: {rate: 5}\n":            "f:1: a key that is no text",
		"~: 5\n":                     "f:1: a key that is no text",
		"name: a\n  rate: 5\n":       "f:2: mapping values are not allowed in this context",
		"name: \"a\xff\"\n":          "f: invalid leading UTF-8 octet",
		"Rate: 5\n":                  `f:1: unknown key "Rate"; did you mean rate?`,
		"banana: 5\n":                `f:1: unknown key "banana"`,
		"config: other\n":            `f:1: unknown key "config"`,
		"print-config: true\n":       `f:1: unknown key "print-config"`,
		"help: true\n":               `f:1: unknown key "help"`,
		"rat: 5\nrate: a\nloud: b\n": "f:1: unknown key \"rat\"; did you mean rate?\nf:2: rate: the text \"a\" is not a whole number\nf:3: loud: the text \"b\" is neither true nor false",
	} {
		if err := decode("f", []byte(text), Keys(newFlags(), newFlags())); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\nwant\n%v", text, err, want)
		}
	}
}

// A key need not be a flag, and its decoder's errors have a line, too.
func TestDecodeOtherKey(t *testing.T) {
	keys := Keys(newFlags(), newFlags())
	var got []string
	keys["places"] = func(value *yaml.Node, key Place) error {
		if value.Kind != yaml.SequenceNode {
			return errors.New("no list")
		}
		got = append(got, key.String())
		return value.Decode(&got)
	}
	if err := decode("f", []byte("rate: 1\nplaces: [a, b]\n"), keys); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, %v", got, err)
	}
	if err := decode("f", []byte("rate: 1\nplaces:\n  a\n"), keys); err == nil || err.Error() != "f:3: places: no list" {
		t.Error(err)
	}
}

// What a command has a value for, and flags that it does not have, are checked nevertheless.
func TestKeysOfOtherCommand(t *testing.T) {
	flags := pflag.NewFlagSet("other", pflag.ContinueOnError)
	rate := flags.Int("rate", 7, "")
	name := flags.String("name", "", "")
	if err := flags.Parse([]string{"--rate", "3"}); err != nil {
		t.Fatal(err)
	}
	if err := decode("f", []byte("rate: 5\nname: a\ndelay: 1s\n"), Keys(newFlags(), flags)); err != nil || *rate != 3 || *name != "a" {
		t.Errorf("rate %d, name %q, %v", *rate, *name, err)
	}
	for text, want := range map[string]string{
		"rate: a\n":   `f:1: rate: the text "a" is not a whole number`,
		"delay: no\n": `f:1: delay: time: invalid duration "no"`,
		"speed: 1\n":  `f:1: unknown key "speed"`,
	} {
		if err := decode("f", []byte(text), Keys(newFlags(), flags)); err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFromFile(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, []byte("rate: 5\n#"+strings.Repeat("x", maxFileBytes-len("rate: 5\n#"))), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := newFlags()
	if err := FromFile(large, Keys(newFlags(), flags)); err != nil || !flags.Changed("rate") {
		t.Error(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file or directory",
		dir:                           "is a directory",
		"/dev/zero":                   "more than 1048576 bytes are no configuration",
	} {
		if err := FromFile(path, Keys(newFlags(), flags)); err == nil || err.Error() != "--config "+path+": "+want {
			t.Error(err)
		}
	}
	if err := FromFile(filepath.Join(dir, "missing"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Whatever a file says, what Print makes of it says the same.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"", "rate: 5\nloud: true\n", "only: [a, 'b: #', \"\\n\\x00\\uFFFE\"]\nname: \" x\"\n", "name: |\n  a\n  b\n",
		"name: ''\ndelay: 1ns\n", "rate: &a 5\nname: *a\n", "only: *\n", "? ? a\n", "<<: {}\n", "--- !!map {name: !!str 1}\n",
		"name: \"\\u2028\\u0085\\ufeff\U0001F600\"\n", "[[[[[[", "a: {b: [", "%YAML 1.1\n---\nname: 0o7\n", "rate: 1_0\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		flags := newFlags()
		if decode("f", text, Keys(newFlags(), flags)) != nil {
			return
		}
		var out strings.Builder
		if err := Print(&out, flags); err != nil {
			t.Fatal(err)
		}
		again := newFlags()
		if err := decode("f", []byte(out.String()), Keys(newFlags(), again)); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		flags.VisitAll(func(f *pflag.Flag) {
			got := again.Lookup(f.Name)
			if got.Value.String() != f.Value.String() {
				t.Errorf("%s is %q, want %q:\n%s", f.Name, got.Value, f.Value, &out)
			}
			if isSetting(f.Name) && !got.Changed {
				t.Errorf("%s is not printed", f.Name)
			}
		})
	})
}
