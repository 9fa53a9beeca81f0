package help

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"correlator/internal/config"
	"correlator/internal/terminal"
)

// usage describes the flags in lines of at most width columns, if their names allow: first those of
// no group, then group by group, in the order of their first flags.
func usage(flags *pflag.FlagSet, width int) string {
	titles := []string{""}
	groups := map[string][]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		title := config.Group(f)
		if groups[title] == nil && title != "" {
			titles = append(titles, title)
		}
		groups[title] = append(groups[title], f)
	})
	var out strings.Builder
	for _, title := range titles {
		if len(groups[title]) == 0 {
			continue // there is none without a group
		}
		if title == "" {
			out.WriteString("\nFlags:\n")
		} else {
			fmt.Fprintf(&out, "\n%s:\n", title)
		}
		for _, f := range groups[title] {
			writeFlag(&out, f, width)
		}
	}
	return out.String()
}

// writeFlag writes a line with the flag's name, type and default, and its description below.
func writeFlag(out *strings.Builder, f *pflag.Flag, width int) {
	kind, usage := pflag.UnquoteUsage(f)
	head := "--" + f.Name
	if f.Shorthand != "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if kind != "" {
		head += " " + kind
	}
	// A default that only words can describe is the end of the usage.
	if start := strings.LastIndex(usage, " (default: "); start >= 0 && strings.HasSuffix(usage, ")") {
		head += usage[start:]
		usage = usage[:start]
	} else if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		head += fmt.Sprintf(" (default: %s)", f.DefValue)
	}
	out.WriteString(wrap(head, "  ", "      ", width))
	out.WriteString(wrap(usage, "      ", "      ", width))
}

// wrap breaks a text between words into lines of at most width columns. The first line begins with
// first, the others with indent.
func wrap(text, first, indent string, width int) string {
	var out strings.Builder
	line, column := first, terminal.Width(first)
	empty := true // the line has no word yet
	for _, word := range strings.Fields(text) {
		n := terminal.Width(word)
		if !empty && column+1+n > width {
			out.WriteString(line + "\n")
			line, column, empty = indent, terminal.Width(indent), true
		}
		if !empty {
			line, column = line+" ", column+1
		}
		line, column, empty = line+word, column+n, false
	}
	out.WriteString(line + "\n")
	return out.String()
}
