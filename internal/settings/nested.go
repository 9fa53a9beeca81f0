package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Some settings are too much for a flag: mappings, lists of mappings. They are keys of a file alone. To have
// them in the same table as all others each is a flag that is hidden and takes no value, and what is below it
// is a set of flags again: name, type, default, value and origin of a key are what they are of a flag.

// nested is the value of such a flag.
type nested interface {
	pflag.Value
	decode(node *yaml.Node, key Place) error
	print(p *printer, f *pflag.Flag, indent string) error
}

// noFlag is what nested values have in common.
type noFlag struct{}

func (noFlag) Set(string) error {
	return fmt.Errorf("it is a key of the file that --%s names, and no flag", Config)
}
func (noFlag) String() string { return "" }
func (noFlag) Type() string   { return "nested" }

func addNested(flags *pflag.FlagSet, name string, value nested) {
	flags.AddFlag(&pflag.Flag{Name: name, Value: value, Hidden: true})
}

// Section adds a key whose value is a mapping. Its keys are the flags that define makes.
func Section(flags *pflag.FlagSet, name string, define func(section *pflag.FlagSet)) {
	addNested(flags, name, &section{flags: newSection(define)})
}

func newSection(define func(*pflag.FlagSet)) *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	define(flags)
	return flags
}

type section struct {
	noFlag
	flags *pflag.FlagSet
}

// decode takes nothing at all for an empty mapping: what is left when all lines of one are comments.
func (s *section) decode(node *yaml.Node, key Place) error {
	if node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return errors.New("not a mapping: each line is a key, a colon, a space and a value")
	}
	return decodeKeys(node, key.File, Keys(s.flags, s.flags)).err()
}

// Sections adds a key whose value is a list of mappings. For each element define makes flags, which are its
// keys, and returns what says, when they have their values, what is wrong with them together.
func Sections(flags *pflag.FlagSet, name string, define func(element *pflag.FlagSet) (check func() error)) {
	addNested(flags, name, &sections{define: define})
}

type sections struct {
	noFlag
	define func(*pflag.FlagSet) func() error
	all    []*section
}

func (l *sections) decode(node *yaml.Node, key Place) error {
	if node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		return errors.New("not a list of mappings: each begins with a dash and a space")
	}
	var wrong wrongs
	for i, element := range node.Content {
		s, check := l.add()
		err := s.decode(element, Place{key.File, element.Line})
		if err == nil {
			err = check()
		}
		wrong.add(fmt.Sprintf("[%d]", i), element, err)
	}
	return wrong.err()
}

func (l *sections) add() (*section, func() error) {
	var check func() error
	s := &section{flags: newSection(func(flags *pflag.FlagSet) { check = l.define(flags) })}
	l.all = append(l.all, s)
	return s, check
}

// Replace makes a list of Sections have n elements, as if a file had them, without a value for any key. It is
// define that gets the flags of each.
func Replace(flags *pflag.FlagSet, name string, n int) {
	l := flags.Lookup(name).Value.(*sections)
	l.all = nil
	for range n {
		l.add()
	}
}

// maxNameBytes is enough for the name of a header.
const maxNameBytes = 256

// nameCharacters are those of names in Texts. What has others is not shown: it may be a name and a value
// that were written wrongly.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// Texts adds a key whose value is a mapping from whatever names to texts. Values of secret ones are shown
// nowhere: Print gives null for each, which is refused when it is read.
func Texts(flags *pflag.FlagSet, name string, values *map[string]string, secret bool) {
	addNested(flags, name, &texts{values: values, secret: secret})
}

type texts struct {
	noFlag
	values  *map[string]string
	origins map[string]string
	secret  bool
}

func (t *texts) decode(node *yaml.Node, key Place) error {
	if node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return errors.New("not a mapping of names to texts") // nor shown: it may be one of the texts
	}
	var wrong wrongs
	lines := map[string]int{}
	for pair := range slices.Chunk(node.Content, 2) {
		key, value, at := pair[0], pair[1], Place{key.File, pair[0].Line}
		err := checkName(key)
		if err == nil {
			err = checkFirst(key, lines)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		lines[key.Value] = key.Line
		text, err := t.scalar(value)
		if wrong.add(key.Value, value, err); err == nil {
			t.put(key.Value, text, at.String())
		}
	}
	return wrong.err()
}

func checkName(key *yaml.Node) error {
	if err := checkText(key); err != nil {
		return err
	}
	if n := len(key.Value); n == 0 || n > maxNameBytes || strings.Trim(key.Value, nameCharacters) != "" {
		return at(key, errors.New("a name with other characters than letters, digits, hyphens, underscores and dots"))
	}
	return nil
}

// scalar is scalar, but for secrets, which an error must not show.
func (t *texts) scalar(value *yaml.Node) (string, error) {
	if !t.secret {
		return scalar(value, "string")
	}
	switch {
	case value.Kind != yaml.ScalarNode:
		return "", errors.New("not a text")
	case value.ShortTag() == "!!null":
		return "", fmt.Errorf("no value (--%s shows none)", PrintConfig)
	case value.ShortTag() != "!!str":
		return "", errors.New("not a text: it needs quotes")
	}
	return value.Value, nil
}

func (t *texts) put(name, text, origin string) {
	if *t.values == nil {
		*t.values, t.origins = map[string]string{}, map[string]string{}
	}
	(*t.values)[name], t.origins[name] = text, origin
}
