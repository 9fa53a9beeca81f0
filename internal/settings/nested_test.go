package settings

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// nestedValues are what nestedFlags set.
type nestedValues struct {
	deep    int64
	servers []*server
}

type server struct {
	name           string
	port           int
	only           []string
	files, secrets map[string]string
}

func nestedFlags() (*pflag.FlagSet, *nestedValues) {
	flags, v := pflag.NewFlagSet("test", pflag.ContinueOnError), &nestedValues{}
	Group(flags, "Deep", func(flags *pflag.FlagSet) {
		flags.Bool("flat", false, "")
		Section(flags, "top", func(flags *pflag.FlagSet) {
			Sections(flags, "servers", func(flags *pflag.FlagSet) func() error {
				s := &server{}
				v.servers = append(v.servers, s)
				flags.StringVar(&s.name, "name", "", "")
				flags.IntVar(&s.port, "port", 80, "")
				flags.StringArrayVar(&s.only, "only", nil, "")
				Texts(flags, "files", &s.files, false)
				Texts(flags, "secrets", &s.secrets, true)
				return func() error {
					if s.name == "" {
						return errors.New("name is missing")
					}
					return nil
				}
			})
			Section(flags, "below", func(flags *pflag.FlagSet) { flags.Int64Var(&v.deep, "deep", 7, "") })
		})
	})
	return flags, v
}

func decodeNested(text string) (*pflag.FlagSet, *nestedValues, error) {
	flags, v := nestedFlags()
	every, _ := nestedFlags()
	return flags, v, decode("f", []byte(text), Keys(every, flags))
}

const nestedFile = `top:
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
func TestNested(t *testing.T) {
	flags, v, err := decodeNested(nestedFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.servers) != 2 || v.deep != 9 || v.servers[0].secrets["key"] != "s3cret" || v.servers[1].port != 81 ||
		!maps.Equal(v.servers[0].files, map[string]string{"x-y": "/f", "1": "a: b"}) {
		t.Errorf("%+v %+v %+v", v, v.servers[0], v.servers[1])
	}
	var out strings.Builder
	if err := Print(&out, flags); err != nil {
		t.Fatal(err)
	}
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
	if spaced(out.String()) != spaced(want) {
		t.Errorf("%s\nwant\n%s", &out, want)
	}

	// What was not shown is asked for.
	if _, _, err := decodeNested(out.String()); err == nil || err.Error() != "f:12: top.servers[0].secrets.key: no value (--print-config shows none)" {
		t.Error(err)
	}
	if _, again, err := decodeNested(strings.Replace(out.String(), "key:", "key: s3cret", 1)); err != nil ||
		fmt.Sprintf("%+v", *again.servers[0]) != fmt.Sprintf("%+v", *v.servers[0]) || again.deep != 9 {
		t.Error(err)
	}
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

// Nothing of it is a flag or a variable; nothing at all is nothing, at every depth.
func TestNestedIsNoFlag(t *testing.T) {
	flags, _ := nestedFlags()
	t.Setenv("CORRELATOR_TOP", "x")
	if err := FromEnvironment(flags); err != nil {
		t.Error(err)
	}
	if err := flags.Parse([]string{"--top", "x"}); err == nil || !strings.Contains(err.Error(), "it is a key of the file that --config names, and no flag") {
		t.Error(err)
	}
	if got := UnknownVariables([]string{"CORRELATOR_TOP=x"}, flags); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if usage := Usage(flags, 80); strings.Contains(usage, "top") {
		t.Error(usage)
	}
	for _, text := range []string{"top:\n", "top: {}\n", "top:\n  servers:\n  below:\n", "top: {servers: [], below: {}}\n"} {
		if _, v, err := decodeNested(text); err != nil || len(v.servers) > 0 || v.deep != 7 {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
}

// What is wrong has its line and its path, all of it at once, and no secret.
func TestNestedWrong(t *testing.T) {
	for text, want := range map[string]string{
		"top: 5\n":                                                        "f:1: top: not a mapping: each line is a key, a colon, a space and a value",
		"top: [below]\n":                                                  "f:1: top: not a mapping: each line is a key, a colon, a space and a value",
		"top:\n  belo:\n    deep: 9\n":                                    `f:2: top: unknown key "belo"; did you mean below?`,
		"top:\n  below:\n    dep: 9\n":                                    `f:3: top.below: unknown key "dep"; did you mean deep?`,
		"top:\n  below: {deep: 1, deep: 2}":                               "f:2: top.below: deep is set for the second time, after line 2",
		"top:\n  below: {}\n  below: {}\n":                                "f:3: top: below is set for the second time, after line 2",
		"top: {}\ntop: {}\n":                                              "f:2: top is set for the second time, after line 1",
		"top:\n  below: {deep: x}\n":                                      `f:2: top.below.deep: the text "x" is not a whole number`,
		"top:\n  servers: {name: a}\n":                                    "f:2: top.servers: not a list of mappings: each begins with a dash and a space",
		"top:\n  servers:\n    - a\n":                                     "f:3: top.servers[0]: not a mapping: each line is a key, a colon, a space and a value",
		"top:\n  servers:\n    - name: a\n    - port: 81\n":               "f:4: top.servers[1]: name is missing",
		"top:\n  servers:\n    - name: a\n      nane: b\n      port: x\n": "f:4: top.servers[0]: unknown key \"nane\"; did you mean name?\nf:5: top.servers[0].port: the text \"x\" is not a whole number",
		"top:\n  servers:\n    - name: a\n      only: [a, 1]\n":           "f:4: top.servers[0].only: 1 is not a text: it needs quotes",
		"top:\n  servers:\n    - name: &a a\n":                            "f:3: anchors and aliases are not read; a text that begins with & or * needs quotes",

		secretly("s3cret"):                               "f:3: top.servers[0].secrets: not a mapping of names to texts",
		secretly("[s3cret]"):                             "f:3: top.servers[0].secrets: not a mapping of names to texts",
		secretly("{key=s3cret}"):                         "f:3: top.servers[0].secrets: a name with other characters than letters, digits, hyphens, underscores and dots",
		secretly(`{"": s3cret}`):                         "f:3: top.servers[0].secrets: a name with other characters than letters, digits, hyphens, underscores and dots",
		secretly("{s3cret: }"):                           "f:3: top.servers[0].secrets.s3cret: no value (--print-config shows none)", // it is a name
		secretly("{key: 12345}"):                         "f:3: top.servers[0].secrets.key: not a text: it needs quotes",
		secretly("{key: [s3cret]}"):                      "f:3: top.servers[0].secrets.key: not a text",
		secretly("{key: {a: s3cret}}"):                   "f:3: top.servers[0].secrets.key: not a text",
		secretly("{key: s3cret, key: s3cret}"):           "f:3: top.servers[0].secrets: key is set for the second time, after line 3",
		secretly("{key: *s3cret}"):                       "f:3: an alias of no anchor; a text that begins with * needs quotes",
		secretly("{key: &s3cret }"):                      "f:3: anchors and aliases are not read; a text that begins with & or * needs quotes",
		secretly("{[key]: s3cret}"):                      "f:3: top.servers[0].secrets: a key that is no text",
		secretly("{" + strings.Repeat("k", 257) + ": }"): "f:3: top.servers[0].secrets: a name with other characters than letters, digits, hyphens, underscores and dots",
	} {
		if _, _, err := decodeNested(text); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\nwant\n%v", text, err, want)
		}
	}
}

func secretly(secrets string) string {
	return "top:\n  servers:\n    - {name: a, secrets: " + secrets + "}\n"
}

// A list may be given without a file, too.
func TestReplace(t *testing.T) {
	flags, v, err := decodeNested("top: {servers: [{name: a}]}\n")
	if err != nil {
		t.Fatal(err)
	}
	section := flags.Lookup("top").Value.(*section).flags
	v.servers = nil
	Replace(section, "servers", 2)
	if len(v.servers) != 2 {
		t.Fatalf("%d servers", len(v.servers))
	}
	v.servers[1].name = "c"
	var out strings.Builder
	if err := Print(&out, flags); err != nil || strings.Contains(out.String(), "name: a") || !strings.Contains(out.String(), "- name: c") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// Whatever a file says, what Print makes of it says the same, but for secrets.
func FuzzDecodeNested(f *testing.F) {
	for _, text := range []string{
		nestedFile, "", "top:\n", "top: {servers: [{name: \"\\n\", files: {a.b: \"\\0\"}}]}\n", "top: {servers: [{name: '- #', files: {null: x, 'y': ''}}]}\n",
		"top:\n- a\n", "top: {below: {deep: -0x1}}\n", "top: {servers: [{name: [}]}\n", "top: {servers: [!!map {name: a}]}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		flags, v, err := decodeNested(string(text))
		if err != nil {
			return
		}
		var first, second strings.Builder
		if err := Print(&first, flags); err != nil {
			t.Fatal(err)
		}
		again, w, err := decodeNested(first.String())
		for _, s := range v.servers {
			if len(s.secrets) > 0 {
				if err == nil {
					t.Errorf("what has no secrets is taken:\n%s", &first)
				}
				return
			}
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, &first)
		}
		if err := Print(&second, again); err != nil || len(v.servers) != len(w.servers) || withoutComments(first.String()) != withoutComments(second.String()) {
			t.Errorf("%v\n%s\nread and written again is\n%s", err, &first, &second)
		}
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
