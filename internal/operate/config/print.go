package config

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxAligned is how wide a line may be to have its comment in the column of the others: longer ones
// would push that out of sight.
const maxAligned = 48

// Print writes a configuration as a file with the source of each value as a comment. Derived
// defaults are comments themselves: on another host, or beside other values, they would be
// different. Secrets are not shown.
func (c *Config) Print(w io.Writer, s *Settings) error { return s.print(w, NewSettings(c).fields) }

func (s *Settings) print(w io.Writer, fields []field) error {
	p := printer{settings: s}
	if err := p.fields(fields, "", "", ""); err != nil {
		return err
	}
	_, err := w.Write(p.bytes())
	return err
}

type printer struct {
	settings *Settings
	lines    []line
}

type line struct {
	group, text string
	source      string // may be empty
}

// fields adds fields below a path, the first after another indentation than the others.
func (p *printer) fields(fields []field, path, first, indent string) error {
	for i := range fields {
		f := &fields[i]
		if err := p.field(f, join(path, f.key), first); err != nil {
			return fmt.Errorf("writing %s: %w", join(path, f.key), err)
		}
		first = indent
	}
	return nil
}

func (p *printer) field(f *field, path, indent string) error {
	if p.settings.sources[path].commented {
		indent += "# "
	}
	head, from := indent+f.key+":", p.settings.sources[path].String()
	_, isList := settable(f.value).(list)
	switch kind := f.value.Kind(); {
	case kind == reflect.Struct:
		p.add(f, head, "")
		return p.fields(fieldsOf(f.value, ""), path, indent+"  ", indent+"  ")
	case isList || kind != reflect.Slice && kind != reflect.Map:
		value, err := format(nodeOf(f))
		p.add(f, head+" "+value, from)
		return err
	case f.value.Len() == 0 && kind == reflect.Slice:
		p.add(f, head+" []", from)
		return nil
	case f.value.Len() == 0:
		p.add(f, head+" {}", from)
		return nil
	case kind == reflect.Map:
		p.add(f, head, "")
		return p.texts(f, path, indent+"  ")
	}
	p.add(f, head, "")
	for i := range f.value.Len() {
		at := fmt.Sprintf("%s[%d]", path, i)
		if err := p.fields(fieldsOf(f.value.Index(i), ""), at, indent+"  - ", indent+"    "); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) texts(f *field, path, indent string) error {
	all := f.value.Convert(reflect.TypeFor[map[string]string]()).Interface().(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		from, ok := p.settings.sources[join(path, name)]
		if !ok { // all came at once
			from = p.settings.sources[path]
		}
		key, err := format(textNode(name)) // quoted if it would be a number
		if err != nil {
			return err
		}
		if f.tag.Get("secret") == "true" {
			p.add(f, indent+key+":", "not shown; "+from.String())
			continue
		}
		value, err := format(textNode(all[name]))
		if err != nil {
			return err
		}
		p.add(f, indent+key+": "+value, from.String())
	}
	return nil
}

func (p *printer) add(f *field, text, source string) {
	p.lines = append(p.lines, line{f.group, text, source})
}

// bytes returns the lines with the comments in one column.
func (p *printer) bytes() []byte {
	var width int
	for _, l := range p.lines {
		if n := utf8.RuneCountInString(l.text); n <= maxAligned && l.source != "" {
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
		if l.source == "" {
			fmt.Fprintln(&out, l.text)
			continue
		}
		fmt.Fprintf(&out, "%-*s  # %s\n", width, l.text, printable(l.source))
	}
	return out.Bytes()
}

// printable returns a text that cannot end a comment: a path may contain line feeds.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// nodeOf returns a single value, or a list of values, as YAML.
func nodeOf(f *field) *yaml.Node {
	if l, ok := settable(f.value).(list); ok {
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range l.texts() {
			node.Content = append(node.Content, textNode(text))
		}
		return node
	}
	switch f.value.Interface().(type) {
	case bool, int, int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text(f.value)}
	}
	return textNode(text(f.value))
}

func format(node *yaml.Node) (string, error) {
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
