package settings

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// explained is an error whose message names origins.
type explained struct {
	message string
	error
}

func (e explained) Error() string { return e.message }
func (e explained) Unwrap() error { return e.error }

var flagName = regexp.MustCompile(`--[a-z]+(-[a-z]+)*`)

// Explain makes an error about values of flags tell where they come from, when that is not the
// command line: "--samples-delay 0s is ..." becomes "samples-delay 0s (/etc/c.yaml:4) is ...". What is
// said of a flag that stands neither with its value nor first is advice, and stays.
func Explain(err error, flags *pflag.FlagSet) error {
	message := err.Error()
	var out strings.Builder
	done := 0
	for _, place := range flagName.FindAllStringIndex(message, -1) {
		name, rest := message[place[0]+2:place[1]], message[place[1]:]
		f := flags.Lookup(name)
		if f == nil || annotation(f, originAnnotation) == "" {
			continue
		}
		value := " " + f.Value.String()
		if value == " " || !strings.HasPrefix(rest, value) {
			if value = ""; place[0] > 0 {
				continue
			}
		}
		out.WriteString(message[done:place[0]] + name + value + " (" + originOf(f) + ")")
		done = place[1] + len(value)
	}
	if done == 0 {
		return err
	}
	return explained{out.String() + message[done:], err}
}
