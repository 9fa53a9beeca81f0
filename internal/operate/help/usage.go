package help

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"correlator/internal/host/terminal"
	"correlator/internal/operate/config"
)

// group is flags under a title; that of the first is "".
type group struct {
	title string
	flags []*pflag.Flag
}

// groups returns the flags that are shown: first those of no group, which may be none, then group by
// group, in the order of their first flags.
func groups(flags *pflag.FlagSet) []group {
	found := []group{{}}
	index := map[string]int{"": 0}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		title := config.Group(f)
		i, known := index[title]
		if !known {
			i = len(found)
			index[title] = i
			found = append(found, group{title: title})
		}
		found[i].flags = append(found[i].flags, f)
	})
	return found
}

// usage describes the flags in lines of at most width columns, if their names allow.
func usage(flags *pflag.FlagSet, width int) string {
	var out strings.Builder
	for _, g := range groups(flags) {
		if len(g.flags) == 0 {
			continue
		}
		if g.title == "" {
			out.WriteString("\nFlags:\n")
		} else {
			fmt.Fprintf(&out, "\n%s:\n", g.title)
		}
		for _, f := range g.flags {
			name, kind, initial, usage := describe(f)
			out.WriteString(terminal.Wrap(strings.Join([]string{name, kind, initial}, " "), "  ", 2, 6, width))
			out.WriteString(terminal.Wrap(usage, "      ", 6, 6, width))
		}
	}
	return out.String()
}

// describe returns the parts of a flag's description. Without a type or a default, these are empty.
func describe(f *pflag.Flag) (name, kind, initial, usage string) {
	kind, usage = pflag.UnquoteUsage(f)
	name = "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	// A default that only words can describe is the end of the usage.
	if start := strings.LastIndex(usage, " (default: "); start >= 0 && strings.HasSuffix(usage, ")") {
		usage, initial = usage[:start], usage[start+1:]
	} else if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		initial = fmt.Sprintf("(default: %s)", f.DefValue)
	}
	return name, kind, initial, usage
}
