package config

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"

	"correlator/otlp"
)

// testSections has settings that only a file can give.
type testSections struct {
	Deep struct {
		Flat bool `key:"flat"`
		Top  struct {
			Servers []server `key:"servers"`
			Below   struct {
				Deep int64 `key:"deep"`
			} `key:"below"`
		} `key:"top"`
	} `group:"Deep"`
}

type server struct {
	Name    string            `key:"name"`
	Port    int               `key:"port"`
	Only    Patterns          `key:"only"`
	Files   map[string]string `key:"files"`
	Secrets otlp.Headers      `key:"secrets" secret:"true"`
}

func (s *server) setDefaults() { s.Port = 80 }

func (s *server) check(*Settings, string) error {
	if s.Name == "" {
		return errors.New("name is missing")
	}
	return nil
}

func decodeSections(text string) (*testSections, *Settings, error) {
	v := &testSections{}
	v.Deep.Top.Below.Deep = 7
	s := NewSettings(v)
	return v, s, s.decode("f", []byte(text))
}

const sectionsFile = `top:
  servers:
    - name: a
      files: {x-y: /f, "1": "a: b"}
      secrets:
        key: s3cret
    - port: 81
      only: [q, r]
      name: b
  below:
    deep: 9
`

// Keys of keys have values and origins as flags do, and are shown as they can be read again.
func TestSections(t *testing.T) {
	v, s, err := decodeSections(sectionsFile)
	assert.NilError(t, err)
	top := &v.Deep.Top
	assert.Check(t, len(top.Servers) == 2 && top.Below.Deep == 9 && top.Servers[0].Secrets["key"] == "s3cret" &&
		top.Servers[1].Port == 81 && maps.Equal(top.Servers[0].Files, map[string]string{"x-y": "/f", "1": "a: b"}),
		"%+v", v)
	var out strings.Builder
	assert.NilError(t, s.print(&out, s.fields))
	want := `# Deep
flat: false         # default
top:
  servers:
    - name: a       # f:3
      port: 80      # default
      only: []      # default
      files:
        "1": 'a: b'  # f:4
        x-y: /f     # f:4
      secrets:
        key:        # not shown; f:6
    - name: b       # f:9
      port: 81      # f:7
      only: [q, r]  # f:8
      files: {}     # default
      secrets: {}   # default
  below:
    deep: 9         # f:11
`
	assert.Check(t, spaced(out.String()) == spaced(want), "%s\nwant\n%s", &out, want)

	// What was not shown is asked for.
	if _, _, err := decodeSections(out.String()); err == nil ||
		err.Error() != "f:12: top.servers[0].secrets.key: no value (--print-config shows none)" {
		t.Error(err)
	}
	again, _, err := decodeSections(strings.Replace(out.String(), "key:", "key: s3cret", 1))
	assert.Check(t, err == nil && maps.Equal(again.Deep.Top.Servers[0].Files, top.Servers[0].Files) &&
		maps.Equal(again.Deep.Top.Servers[0].Secrets, top.Servers[0].Secrets) && again.Deep.Top.Below.Deep == 9,
		"%v: %+v", err, again)
}

// spaced is a text with one space where there were several, but at the beginnings of lines.
func spaced(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, " ")
		out = append(out, line[:len(line)-len(rest)]+strings.Join(strings.Fields(rest), " "))
	}
	return strings.Join(out, "\n")
}

// A section is neither a flag nor a variable; an empty one changes nothing, at every depth.
func TestSectionIsNoFlag(t *testing.T) {
	_, s, _ := decodeSections("")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(flags, map[string]string{"flat": ""})
	t.Setenv("CORRELATOR_TOP", "x")
	assert.Check(t, s.Load())
	err := flags.Parse([]string{"--top", "x"})
	if err == nil || !strings.Contains(err.Error(), "it is a key of the file that --config names, and no flag") {
		t.Error(err)
	}
	got := UnknownVariables([]string{"CORRELATOR_TOP=x"}, s)
	assert.Check(t, len(got) == 1, got)
	assert.Check(t, flags.Lookup("top").Hidden, "help shows --top")
	for _, text := range []string{"top:\n", "top: {}\n", "top:\n  servers:\n  below:\n",
		"top: {servers: [], below: {}}\n"} {
		if v, _, err := decodeSections(text); err != nil || len(v.Deep.Top.Servers) > 0 || v.Deep.Top.Below.Deep != 7 {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
}

// What is wrong has its line and its path, all of it at once, and no secret.
func TestSectionsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"top: 5\n": "f:1: top: not a mapping: each line is a " +
			"key, a colon, a space and a value",
		"top: [below]\n": "f:1: top: not a mapping: each line is a " +
			"key, a colon, a space and a value",
		"top:\n  belo:\n    deep: 9\n": `f:2: top: unknown key "belo"; did you mean below?`,
		"top:\n  below:\n    dep: 9\n": `f:3: top.below: unknown key "dep"; did you mean deep?`,
		"top:\n  below: {deep: 1, deep: 2}": "f:2: top.below: deep is set for the " +
			"second time, after line 2",
		"top:\n  below: {}\n  below: {}\n": "f:3: top: below is set for the second " +
			"time, after line 2",
		"top: {}\ntop: {}\n": "f:2: top is set for the second time, " +
			"after line 1",
		"top:\n  below: {deep: x}\n": `f:2: top.below.deep: the text "x" is not a whole number, as in 7`,
		"top:\n  servers: {name: a}\n": "f:2: top.servers: not a list of " +
			"mappings: each begins with a dash and a space",
		"top:\n  servers:\n    - a\n": "f:3: top.servers[0]: not a mapping: " +
			"each line is a key, a colon, a space and a value",
		"top:\n  servers:\n    - name: a\n    - port: 81\n": "f:4: top.servers[1]: name is missing",
		"top:\n  servers:\n    - name: a\n      nane: b\n      port: x\n": "f:4: top.servers[0]: unknown key " +
			"\"nane\"; did you mean name?\nf:5: top.servers[0].port: the text \"x\" is not a whole number, as in 80",
		"top:\n  servers:\n    - name: a\n      only: [a, 1]\n": "f:4: top.servers[0].only: 1 is not a " +
			"text: it needs quotes",
		"top:\n  servers:\n    - name: &a a\n": "f:3: anchors and aliases are not read; " +
			"a text that begins with & or * needs quotes",

		secretly("s3cret"): "f:3: top.servers[0].secrets: not a mapping of names to " +
			"texts",
		secretly("[s3cret]"): "f:3: top.servers[0].secrets: not a mapping of names to " +
			"texts",
		secretly("{key=s3cret}"): "f:3: top.servers[0].secrets: a name with other " +
			"characters than letters, digits, hyphens, underscores and dots",
		secretly(`{"": s3cret}`): "f:3: top.servers[0].secrets: a name with other " +
			"characters than letters, digits, hyphens, underscores and dots",
		secretly("{s3cret: }"): "f:3: top.servers[0].secrets.s3cret: no value " +
			"(--print-config shows none)", // it is a name
		secretly("{key: 12345}"): "f:3: top.servers[0].secrets.key: not a text: it needs " +
			"quotes",
		secretly("{key: [s3cret]}"):    "f:3: top.servers[0].secrets.key: not a text",
		secretly("{key: {a: s3cret}}"): "f:3: top.servers[0].secrets.key: not a text",
		secretly("{key: s3cret, key: s3cret}"): "f:3: top.servers[0].secrets: key is set for the second " +
			"time, after line 3",
		secretly("{key: *s3cret}"): "f:3: an alias of no anchor; a text that begins with * " +
			"needs quotes",
		secretly("{key: &s3cret }"): "f:3: anchors and aliases are not read; a text that " +
			"begins with & or * needs quotes",
		secretly("{[key]: s3cret}"): "f:3: top.servers[0].secrets: a key that is no text",
		secretly("{" + strings.Repeat("k", 257) + ": }"): "f:3: top.servers[0].secrets: a name with other " +
			"characters than letters, digits, hyphens, underscores and dots",
	} {
		_, _, err := decodeSections(text)
		assert.Check(t, err != nil && err.Error() == want, "%q:\n%v\nwant\n%v", text, err, want)
	}
}

func secretly(secrets string) string {
	return "top:\n  servers:\n    - {name: a, secrets: " + secrets + "}\n"
}

// Whatever a file says, what Print makes of it says the same, but for secrets.
func FuzzDecodeSections(f *testing.F) {
	for _, text := range []string{
		sectionsFile, "", "top:\n", "top: {servers: [{name: \"\\n\", files: {a.b: \"\\0\"}}]}\n", "top: {servers: " +
			"[{name: '- #', files: {null: x, 'y': ''}}]}\n",
		"top:\n- a\n", "top: {below: {deep: -0x1}}\n", "top: {servers: [{name: [}]}\n", "top: {servers: [!!map " +
			"{name: a}]}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, s, err := decodeSections(string(text))
		if err != nil {
			return
		}
		var first, second strings.Builder
		assert.NilError(t, s.print(&first, s.fields))
		_, again, err := decodeSections(first.String())
		for _, of := range v.Deep.Top.Servers {
			if len(of.Secrets) > 0 {
				assert.Check(t, err != nil, "accepted without the secrets:\n%s", &first)
				return
			}
		}
		assert.NilError(t, err, "\n%s", &first)
		err = again.print(&second, again.fields)
		assert.Check(t, err == nil && withoutComments(first.String()) == withoutComments(second.String()),
			"%v\n%s\nread and written again is\n%s", err, &first, &second)
	})
}

func withoutComments(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if i := strings.LastIndex(line, "  # "); i >= 0 {
			line = line[:i]
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return strings.Join(out, "\n")
}
