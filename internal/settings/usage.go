package settings

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// Usage describes the flags in lines of at most width columns, if their names allow: first those of
// no group, then group by group, in the order of their first flags.
func Usage(flags *pflag.FlagSet, width int) string {
	titles := []string{""}
	groups := map[string][]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		title := annotation(f, groupAnnotation)
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

// writeFlag writes a line with the flag's name, type and default, and below it what it is.
func writeFlag(out *strings.Builder, f *pflag.Flag, width int) {
	kind, usage := pflag.UnquoteUsage(f)
	head := "--" + f.Name
	if f.Shorthand != "" {
		head = "-" + f.Shorthand + ", " + head
	}
	if kind != "" {
		head += " " + kind
	}
	// A default that only words can tell is the end of the usage.
	if start := strings.LastIndex(usage, " (default: "); start >= 0 && strings.HasSuffix(usage, ")") {
		head += usage[start:]
		usage = usage[:start]
	} else if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		head += fmt.Sprintf(" (default: %s)", f.DefValue)
	}
	out.WriteString(Wrap(head, "  ", "      ", width))
	out.WriteString(Wrap(usage, "      ", "      ", width))
}

// Wrap breaks a text into lines of at most width columns, as far as its words allow. The first line
// begins with first, the others with indent.
func Wrap(text, first, indent string, width int) string {
	var out strings.Builder
	line, column := first, utf8.RuneCountInString(first)
	empty := true // the line has no word yet
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if !empty && column+1+n > width {
			out.WriteString(line + "\n")
			line, column, empty = indent, utf8.RuneCountInString(indent), true
		}
		if !empty {
			line, column = line+" ", column+1
		}
		line, column, empty = line+word, column+n, false
	}
	out.WriteString(line + "\n")
	return out.String()
}
