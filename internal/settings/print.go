package settings

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxAligned is how wide a line may be to have its comment in the column of the others: longer ones
// would push that out of sight.
const maxAligned = 48

// Print writes the values of all settings as a file that FromFile reads, in the order in which the
// flags were defined, with the origin of each as a comment. What was found out is a comment itself: on another
// host, or beside other values, something else would be.
func Print(w io.Writer, flags *pflag.FlagSet) error {
	type line struct{ group, text, origin string }
	var lines []line
	var width int
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if !isSetting(f.Name) || err != nil {
			return
		}
		var value string
		if value, err = format(f); err != nil {
			err = fmt.Errorf("writing --%s: %w", f.Name, err)
			return
		}
		text := f.Name + ": " + value
		if annotation(f, foundAnnotation) != "" {
			text = "# " + text
		}
		lines = append(lines, line{annotation(f, groupAnnotation), text, originOf(f)})
		if n := utf8.RuneCountInString(text); n <= maxAligned {
			width = max(width, n)
		}
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	group := ""
	for _, l := range lines {
		if l.group != group {
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
			fmt.Fprintf(&out, "# %s\n", l.group)
			group = l.group
		}
		fmt.Fprintf(&out, "%-*s  # %s\n", width, l.text, printable(l.origin))
	}
	_, err = w.Write(out.Bytes())
	return err
}

// printable is a text that cannot end a comment: a path may have line feeds in it.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// format is the value of a flag in one line of YAML.
func format(f *pflag.Flag) (string, error) {
	var node yaml.Node
	switch list, ok := f.Value.(pflag.SliceValue); {
	case ok:
		node = yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, element := range list.GetSlice() {
			node.Content = append(node.Content, textNode(element))
		}
	case f.Value.Type() == "bool" || f.Value.Type() == "int":
		return f.Value.String(), nil
	default:
		node = *textNode(f.Value.String())
	}
	out, err := yaml.Marshal(&node)
	return strings.TrimSuffix(string(out), "\n"), err
}

func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		node.Style = yaml.DoubleQuotedStyle // the others would take several lines
	}
	return node
}
