package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The command line goes before the environment, that before a file, and that before what was found out.
func TestPrecedence(t *testing.T) {
	t.Setenv("CORRELATOR_RATE", "2")
	t.Setenv("CORRELATOR_DELAY", "2s")
	t.Setenv("CORRELATOR_ONLY", "e")
	t.Setenv("CORRELATOR_HELP", "true")
	t.Setenv("CORRELATOR_PRINT_CONFIG", "true")
	t.Setenv("CORRELATOR_CONFIG", "f")
	flags := newFlags()
	if err := flags.Parse([]string{"--rate", "1"}); err != nil {
		t.Fatal(err)
	}
	if err := FromEnvironment(flags); err != nil {
		t.Fatal(err)
	}
	if err := decode("f", []byte("rate: 3\ndelay: 3s\nonly: [c]\nloud: true\n"), Keys(newFlags(), flags)); err != nil {
		t.Fatal(err)
	}
	SetFound(flags, "name", "4", "the 4th way")
	want := map[string]string{
		"config": "f environment variable CORRELATOR_CONFIG",
		"rate":   "1 flag",
		"delay":  "2s environment variable CORRELATOR_DELAY",
		"only":   "[e] environment variable CORRELATOR_ONLY",
		"loud":   "true f:4",
	}
	if got := values(t, flags); !maps.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}

	var out strings.Builder
	if err := Print(&out, flags); err != nil {
		t.Fatal(err)
	}
	file := `# Numbers
rate: 1      # flag
delay: 2s    # environment variable CORRELATOR_DELAY

# Others
loud: true   # f:4
# name: "4"  # default: the 4th way
only: [e]    # environment variable CORRELATOR_ONLY
`
	if out.String() != file {
		t.Errorf("%s\nwant\n%s", &out, file)
	}
}

func TestFromEnvironmentWrong(t *testing.T) {
	t.Setenv("CORRELATOR_LOUD", "very")
	err := FromEnvironment(newFlags())
	if want := `environment variable CORRELATOR_LOUD: invalid value "very": strconv.ParseBool: parsing "very": invalid syntax`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestPrintLong(t *testing.T) {
	flags := newFlags()
	long := strings.Repeat("long ", 20) + "x"
	if err := flags.Parse([]string{"--name", long, "--only", "a\nb", "--only", `c\.d #`, "--delay", "1h"}); err != nil {
		t.Fatal(err)
	}
	annotate(flags.Lookup("rate"), originAnnotation, "a\nb:1")
	var out strings.Builder
	if err := Print(&out, flags); err != nil {
		t.Fatal(err)
	}
	want := `# Numbers
rate: 20                  # "a\nb:1"
delay: 1h0m0s             # flag

# Others
loud: false               # default
name: ` + long + `  # flag
only: ["a\nb", 'c\.d #']  # flag
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}

	if err := flags.Set("name", "\xff"); err != nil {
		t.Fatal(err)
	}
	if err := Print(&out, flags); err == nil || !strings.HasPrefix(err.Error(), "writing --name: ") {
		t.Errorf("what is not UTF-8 cannot be YAML: %v", err)
	}
}

func TestUnknownVariables(t *testing.T) {
	environ := []string{
		"PATH=/bin", "CORRELATOR_RATE=1", "CORRELATOR_CONFIG=/etc/c", "CORRELATOR_OUTPUT=json",
		"CORRELATOR_SERVICE_HOST=10.0.0.1", "CORRELATOR_SERVICE_PORT=80", "CORRELATOR_SERVICE_PORT_HTTP=80", "CORRELATOR_PORT=tcp://10.0.0.1:80",
		"CORRELATOR_PORT_80_TCP=tcp://10.0.0.1:80", "CORRELATOR_PORT_80_TCP_ADDR=10.0.0.1", "CORRELATOR_METRICS_SERVICE_HOST=10.0.0.1",
		"CORRELATOR_RAT=1", "CORRELATOR_PRINT_CONFIG=1", "CORRELATOR_BANANA", "CORRELATOR_=",
	}
	other := pflag.NewFlagSet("other", pflag.ContinueOnError)
	other.String("output", "", "")
	got := UnknownVariables(environ, newFlags(), other)
	want := []UnknownVariable{{"CORRELATOR_RAT", "CORRELATOR_RATE"}, {"CORRELATOR_PRINT_CONFIG", ""}, {"CORRELATOR_BANANA", ""}, {"CORRELATOR_", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"samples-delay", "samples-per-second", "unsampled", "log-level"}
	for name, want := range map[string]string{
		"sample-delay": "samples-delay", "samples_per_second": "samples-per-second", "samplesPerSecond": "samples-per-second",
		"unsample": "unsampled", "loglevel": "log-level", "level": "", "": "", "x": "", "delay": "", strings.Repeat("samples-delay", 1000): "",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("%.40q: %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"abcdefghijkl", "", 9}} {
		if got := distance(c.a, c.b, 9); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	flags := newFlags()
	if err := flags.Parse([]string{"--loud"}); err != nil {
		t.Fatal(err)
	}
	if err := decode("f", []byte("\nrate: 0\ndelay: 5s\nname: a b\n"), Keys(newFlags(), flags)); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cause")
	for message, want := range map[string]string{
		"--rate 0 is bad":                             "rate 0 (f:2) is bad",
		"--rate 5 is better":                          "rate (f:2) 5 is better",
		"nothing works without --rate 5":              "nothing works without --rate 5",
		"--delay 5s is above --rate 0 of --only":      "delay 5s (f:3) is above rate 0 (f:2) of --only",
		"--name a b is 3 bytes long":                  "name a b (f:4) is 3 bytes long",
		"--name: too short":                           "name (f:4): too short",
		"--loud true is not quiet":                    "--loud true is not quiet",
		"--rates 0, --bogus, -- and --a-- are no use": "--rates 0, --bogus, -- and --a-- are no use",
	} {
		err := Explain(fmt.Errorf("%s: %w", message, cause), flags)
		if err.Error() != want+": cause" || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestUsage(t *testing.T) {
	flags := newFlags()
	want := `
Flags:
  --config path
      path of settings
  --print-config
      show
  -h, --help
      this

Numbers:
  --rate how (default: often)
      how often
  --delay duration (default:
      300ms)
      how long it may take at
      most

Others:
  --loud
      not quiet
  --name text
      text that is a name
  --only regexp
      each a regexp
`
	if got := Usage(flags, 30); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	if got := Usage(flags, 30); got != "" {
		t.Errorf("%q", got)
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 9, "- \n"},
		{"a bc def", 9, "- a bc\n  def\n"},
		{"a bc def", 10, "- a bc def\n"},
		{"ä bü dëf", 10, "- ä bü dëf\n"},
		{"a\n  bc  ", 10, "- a bc\n"},
		{"abcdefghijkl m", 5, "- abcdefghijkl\n  m\n"},
	} {
		if got := Wrap(c.text, "- ", "  ", c.width); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// A flag that is hidden leaves its group as it is.
func TestUsageOfHiddenFlags(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	Group(flags, "Group", func(flags *pflag.FlagSet) {
		flags.Bool("hidden", false, "not shown")
		flags.Bool("also-hidden", false, "not shown")
		flags.Bool("shown", false, "shown")
	})
	Group(flags, "Empty", func(flags *pflag.FlagSet) { flags.Bool("nothing", false, "not shown") })
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "shown" })
	if got := Usage(flags, 80); got != "\nGroup:\n  --shown\n      shown\n" {
		t.Errorf("%q", got)
	}
}
