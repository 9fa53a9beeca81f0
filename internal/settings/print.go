package settings

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
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
// host, or beside other values, something else would be. So is what was said to be (AsComment).
func Print(w io.Writer, flags *pflag.FlagSet) error {
	var p printer
	if err := p.flags(flags, "", ""); err != nil {
		return err
	}
	_, err := w.Write(p.bytes())
	return err
}

// printer has the lines to be written.
type printer struct{ lines []line }

type line struct{ group, text, origin string }

// flags adds the settings of a set, the first one after other than the usual indentation.
func (p *printer) flags(flags *pflag.FlagSet, first, indent string) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !isSetting(f.Name) || err != nil {
			return
		}
		if err = p.flag(f, first); err != nil {
			err = fmt.Errorf("writing --%s: %w", f.Name, err)
		}
		first = indent
	})
	return err
}

func (p *printer) flag(f *pflag.Flag, indent string) error {
	if value, ok := f.Value.(nested); ok {
		return value.print(p, f, indent)
	}
	value, err := format(f)
	if annotation(f, foundAnnotation) != "" {
		indent += "# "
	}
	p.add(f, indent+f.Name+": "+value, originOf(f))
	return err
}

// add adds a line; origin may be empty.
func (p *printer) add(f *pflag.Flag, text, origin string) {
	p.lines = append(p.lines, line{annotation(f, groupAnnotation), text, origin})
}

// bytes is what is written, with the comments in one column.
func (p *printer) bytes() []byte {
	var width int
	for _, l := range p.lines {
		if n := utf8.RuneCountInString(l.text); n <= maxAligned && l.origin != "" {
			width = max(width, n)
		}
	}
	var out bytes.Buffer
	group := ""
	for _, l := range p.lines {
		if l.group != group && l.group != "" { // what is nested has none
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
			fmt.Fprintf(&out, "# %s\n", l.group)
			group = l.group
		}
		if l.origin == "" {
			fmt.Fprintln(&out, l.text)
			continue
		}
		fmt.Fprintf(&out, "%-*s  # %s\n", width, l.text, printable(l.origin))
	}
	return out.Bytes()
}

func (s *section) print(p *printer, f *pflag.Flag, indent string) error {
	p.add(f, indent+f.Name+":", "")
	return p.flags(s.flags, indent+"  ", indent+"  ")
}

func (l *sections) print(p *printer, f *pflag.Flag, indent string) error {
	if len(l.all) == 0 {
		p.add(f, indent+f.Name+": []", originOf(f))
		return nil
	}
	p.add(f, indent+f.Name+":", "")
	for _, element := range l.all {
		if err := p.flags(element.flags, indent+"  - ", indent+"    "); err != nil {
			return err
		}
	}
	return nil
}

func (t *texts) print(p *printer, f *pflag.Flag, indent string) error {
	if len(*t.values) == 0 {
		p.add(f, indent+f.Name+": {}", originOf(f))
		return nil
	}
	p.add(f, indent+f.Name+":", "")
	for _, name := range slices.Sorted(maps.Keys(*t.values)) {
		value, origin := "", t.origins[name]
		if origin == "" { // they came all at once
			origin = originOf(f)
		}
		if t.secret {
			origin = "not shown; " + origin
		} else {
			text, err := formatNode(textNode((*t.values)[name]))
			if err != nil {
				return err
			}
			value = " " + text
		}
		key, err := formatNode(textNode(name)) // quoted if it would be a number
		if err != nil {
			return err
		}
		p.add(f, indent+"  "+key+":"+value, origin)
	}
	return nil
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
	case slices.Contains([]string{"bool", "int", "int64"}, f.Value.Type()):
		return f.Value.String(), nil
	default:
		node = *textNode(f.Value.String())
	}
	return formatNode(&node)
}

func formatNode(node *yaml.Node) (string, error) {
	out, err := yaml.Marshal(node)
	return strings.TrimSuffix(string(out), "\n"), err
}

func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		node.Style = yaml.DoubleQuotedStyle // the others would take several lines
	}
	return node
}
