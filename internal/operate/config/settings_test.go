package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"
)

func flagsOf(s *Settings) *pflag.FlagSet {
	flags, usage := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]string{}
	for _, f := range s.fields {
		usage[f.key] = ""
	}
	s.AddFlags(flags, usage)
	return flags
}

// The command line goes before the environment, that before a file, and that before what is
// derived.
func TestPrecedence(t *testing.T) {
	t.Setenv("CORRELATOR_RATE", "2")
	t.Setenv("CORRELATOR_DELAY", "2s")
	t.Setenv("CORRELATOR_ONLY", "e\nf")
	t.Setenv("CORRELATOR_HELP", "true")
	t.Setenv("CORRELATOR_PRINT_CONFIG", "true")
	_, s := newTestOptions()
	assert.NilError(t, flagsOf(s).Parse([]string{"--rate", "5", "--rate", "1"}))
	assert.NilError(t, s.Load())
	file := fileSettings()
	assert.NilError(t, file.decode("f", []byte("rate: 3\ndelay: 3s\nonly: [c]\nloud: true\n")))
	s.takeFrom(file)
	s.lookup("name").value.SetString("4")
	s.derived("name", "the 4th way")
	want := []string{"rate=1 flag", "delay=2s environment variable CORRELATOR_DELAY",
		`only=["e" "f"] environment variable CORRELATOR_ONLY`}
	want = slices.Insert(want, 2, "loud=true f:4")
	got := values(s)
	assert.Check(t, slices.Equal(got, want), "%q\nwant %q", got, want)

	var out strings.Builder
	assert.NilError(t, s.print(&out, s.fields[2:]))
	printed := `# Numbers
rate: 1       # flag
delay: 2s     # environment variable CORRELATOR_DELAY

# Others
loud: true    # f:4
# name: "4"   # default: the 4th way
only: [e, f]  # environment variable CORRELATOR_ONLY
`
	assert.Check(t, out.String() == printed, "%s\nwant\n%s", &out, printed)
}

// Settings of another command are taken from a file, as far as they are the same, and all of it is
// checked.
func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	var options struct {
		File
		Filter
		Root string `key:"proc-root"`
	}
	load := func(content string) error {
		assert.NilError(t, os.WriteFile(path, []byte(content), 0o600))
		s := NewSettings(&options)
		assert.NilError(t, flagsOf(s).Parse([]string{"--config", path, "--exclude-service", "b"}))
		return s.Load()
	}
	err := load("proc-root: /a\nexclude-service: [c, d]\ninclude-service: e\nlog-level: debug\n")
	if err != nil || options.Root != "/a" || !slices.Equal(options.ExcludeServices, Patterns{"b"}) ||
		!slices.Equal(options.IncludeServices, Patterns{"e"}) {
		t.Errorf("%+v, %v", options, err)
	}
	for content, want := range map[string]string{
		"samples-per-second: a\n": ":1: samples-per-second: the text \"a\" is not a whole number, as in 20",
		"root: 1\n":               ":1: unknown key \"root\"",
		"config: c\n":             ":1: unknown key \"config\"",
	} {
		err := load(content)
		assert.Check(t, err != nil && err.Error() == path+want, "%q: %v", content, err)
	}
}

// A wrong flag or variable says what is wanted, as a wrong key of a file does.
func TestWrongText(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"loud", "very", "neither true nor false"},
		{"rate", "5x", "not a whole number, as in 20"},
		{"rate", "", "not a whole number, as in 20"},
		{"rate", "99999999999999999999", "too large a number"},
		{"delay", "5", "a duration without unit, as in 300ms, 30s or 1m"},
		{"delay", "5 s", "not a duration, as in 300ms, 30s or 1m"},
		{"only", "(", "error parsing regexp: missing closing ): `(`"},
	} {
		_, s := newTestOptions()
		err := flagsOf(s).Parse([]string{"--" + c.key + "=" + c.value})
		want := fmt.Sprintf("invalid argument %q for \"--%s\" flag: %s", c.value, c.key, c.want)
		assert.Check(t, err != nil && err.Error() == want, "%v, want %s", err, want)
		variable := "CORRELATOR_" + strings.ToUpper(c.key)
		t.Setenv(variable, c.value)
		_, s = newTestOptions()
		err = s.Load()
		want = fmt.Sprintf("environment variable %s: invalid value %q: %s", variable, c.value,
			c.want)
		assert.Check(t, err != nil && err.Error() == want, "%v, want %s", err, want)
		os.Unsetenv(variable)
	}
}

func TestPrintLong(t *testing.T) {
	_, s := newTestOptions()
	long := strings.Repeat("long ", 20) + "x"
	assert.NilError(t, flagsOf(s).Parse([]string{"--name", long, "--only", "a\nb", "--only", `c\.d #`, "--delay",
		"1h"}))
	s.sources["rate"] = source{kind: fromFile, detail: "a\nb:1"}
	var out strings.Builder
	assert.NilError(t, s.print(&out, s.fields[2:]))
	want := `# Numbers
rate: 20                # "a\nb:1"
delay: 1h0m0s           # flag

# Others
loud: false             # default
name: ` + long + `  # flag
only: [a, b, 'c\.d #']  # flag
`
	assert.Check(t, out.String() == want, "%s\nwant\n%s", &out, want)

	s.lookup("name").value.SetString("\xff")
	if err := s.print(&out, s.fields[2:]); err == nil || !strings.HasPrefix(err.Error(), "writing name: ") {
		t.Errorf("what is not UTF-8 cannot be YAML: %v", err)
	}
}

func TestUnknownVariables(t *testing.T) {
	environ := []string{
		"PATH=/bin", "CORRELATOR_RATE=1", "CORRELATOR_CONFIG=/etc/c", "CORRELATOR_OUTPUT=json",
		"CORRELATOR_SERVICE_HOST=10.0.0.1", "CORRELATOR_SERVICE_PORT=80", "CORRELATOR_SERVICE_PORT_HTTP=80",
		"CORRELATOR_PORT=tcp://10.0.0.1:80",
		"CORRELATOR_PORT_80_TCP=tcp://10.0.0.1:80", "CORRELATOR_PORT_80_TCP_ADDR=10.0.0.1",
		"CORRELATOR_METRICS_SERVICE_HOST=10.0.0.1",
		"CORRELATOR_RAT=1", "CORRELATOR_PRINT_CONFIG=1", "CORRELATOR_BANANA", "CORRELATOR_=",
	}
	_, s := newTestOptions()
	var other struct {
		Output string `key:"output"`
	}
	got := UnknownVariables(environ, s, NewSettings(&other))
	want := []UnknownVariable{{"CORRELATOR_RAT", "CORRELATOR_RATE"}, {"CORRELATOR_PRINT_CONFIG", ""},
		{"CORRELATOR_BANANA", ""}, {"CORRELATOR_", ""}}
	assert.Check(t, slices.Equal(got, want), "%q\nwant %q", got, want)
}

func TestNearest(t *testing.T) {
	known := []string{"samples-delay", "samples-per-second", "unsampled", "log-level"}
	for name, want := range map[string]string{
		"sample-delay": "samples-delay", "samples_per_second": "samples-per-second",
		"samplesPerSecond": "samples-per-second",
		"unsample":         "unsampled", "loglevel": "log-level", "level": "", "": "", "x": "", "delay": "",
		strings.Repeat("samples-delay", 1000): "",
	} {
		got := Nearest(name, known)
		assert.Check(t, got == want, "%.40q: %q, want %q", name, got, want)
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"ab", "ba",
		2}, {"abcdefghijkl", "", 9}} {
		got := distance(c.a, c.b, 9)
		assert.Check(t, got == c.want, "from %q to %q: %d, want %d", c.a, c.b, got, c.want)
	}
}

// A message names the flag, or the key and where its value comes from.
func TestNameAndLabel(t *testing.T) {
	_, s := newTestOptions()
	assert.NilError(t, flagsOf(s).Parse([]string{"--loud"}))
	file := fileSettings()
	assert.NilError(t, file.decode("f", []byte("\nrate: 0\nname: a b\n")))
	s.takeFrom(file)
	for _, c := range [][2]string{
		{s.Label("rate"), "rate 0 (f:2)"}, {s.Name("rate"), "rate (f:2)"}, {s.Label("name"), "name a b (f:3)"},
		{s.Label("loud"), "--loud true"}, {s.Name("loud"), "--loud"}, {s.Label("delay"), "--delay 300ms"},
	} {
		assert.Check(t, c[0] == c[1], "%s, want %s", c[0], c[1])
	}
}
