package help

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"gotest.tools/v3/assert"

	"correlator/internal/operate/config"
)

func flagsOf(options any, usage map[string]string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.NewSettings(options).AddFlags(flags, usage)
	return flags
}

func TestUsage(t *testing.T) {
	var options struct {
		config.File
		PrintConfig bool `key:"print-config"`
		Help        bool `key:"help" short:"h"`
		Numbers     struct {
			Rate  int           `key:"rate"`
			Delay time.Duration `key:"delay"`
		} `group:"Numbers"`
		Others struct {
			Loud bool            `key:"loud"`
			Name string          `key:"name"`
			Only config.Patterns `key:"only" type:"regexp"`
		} `group:"Others"`
	}
	options.Numbers.Rate, options.Numbers.Delay = 20, 300*time.Millisecond
	flags := flagsOf(&options, map[string]string{
		"config": "`path` of settings", "print-config": "show", "help": "this",
		"rate": "`how` often (default: often)", "delay": "how long it may take at most",
		"loud": "not quiet", "name": "`text` that is a name", "only": "each a regexp",
	})
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
	got := usage(flags, 30)
	assert.Check(t, got == want, "%s\nwant\n%s", got, want)
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	got = usage(flags, 30)
	assert.Check(t, got == "", "%q", got)
}

// A hidden flag leaves its group as it is.
func TestUsageOfHiddenFlags(t *testing.T) {
	var options struct {
		First struct {
			Hidden bool `key:"hidden"`
			Also   bool `key:"also-hidden"`
			Shown  bool `key:"shown"`
		} `group:"Group"`
		Second struct {
			Nothing bool `key:"nothing"`
		} `group:"Empty"`
	}
	flags := flagsOf(&options, map[string]string{"hidden": "not shown", "also-hidden": "not shown",
		"shown": "shown", "nothing": "not shown"})
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "shown" })
	got := usage(flags, 80)
	assert.Check(t, got == "\nGroup:\n  --shown\n      shown\n", "%q", got)
}
