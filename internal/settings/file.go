package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxFileBytes is far more than every setting with hundreds of expressions takes, and keeps what is
// named by mistake, a device or a log, out of memory.
const maxFileBytes = 1 << 20

// A Decoder takes the value of one key of a file, which stands at a place.
type Decoder func(value *yaml.Node, key Place) error

// Place is a line of a file.
type Place struct {
	File string
	Line int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Keys are the decoders of all flags of every that are settings. A value goes to the flag of the
// same name in flags if that has one without a value; else it is only checked, and every is used up for
// that. The caller may add keys that are no flags.
func Keys(every, flags *pflag.FlagSet) map[string]Decoder {
	keys := map[string]Decoder{}
	every.VisitAll(func(f *pflag.Flag) {
		if own := flags.Lookup(f.Name); own != nil && !own.Changed {
			f = own
		}
		if isSetting(f.Name) {
			keys[f.Name] = decoderOf(f)
		}
	})
	return keys
}

func decoderOf(f *pflag.Flag) Decoder {
	return func(node *yaml.Node, key Place) error {
		annotate(f, fileAnnotation, "yes")
		if value, ok := f.Value.(nested); ok {
			given(f, key.String())
			return value.decode(node, key)
		}
		return decodeFlag(f, node, key)
	}
}

// FromFile decodes the YAML file at path: one mapping, or nothing at all. What is wrong in it is told
// with path and line, all wrong keys and values at once.
func FromFile(path string, keys map[string]Decoder) error {
	text, err := read(path)
	if err != nil {
		return fmt.Errorf("--%s %s: %w", Config, path, err)
	}
	return decode(path, text, keys)
}

// read also takes a pipe, which is what <(...) of a shell is.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("more than %d bytes are no configuration", maxFileBytes)
	}
	return text, reason(err)
}

// reason is an error without the path that it names, which our message has already.
func reason(err error) error {
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

func decode(path string, text []byte, keys map[string]Decoder) error {
	root, err := parse(text)
	if err != nil {
		return place(path, err)
	}
	if root == nil {
		return nil
	}
	var wrong []error
	for _, err := range decodeKeys(root, path, keys) {
		wrong = append(wrong, place(path, err))
	}
	return errors.Join(wrong...)
}

// decodeKeys decodes a mapping, and returns what is wrong in it.
func decodeKeys(mapping *yaml.Node, file string, keys map[string]Decoder) (wrong wrongs) {
	known := slices.Sorted(maps.Keys(keys))
	lines := map[string]int{} // of the keys so far
	for pair := range slices.Chunk(mapping.Content, 2) {
		key, value := pair[0], pair[1]
		if err := checkKey(key, known, lines); err != nil {
			wrong = append(wrong, err)
			continue
		}
		lines[key.Value] = key.Line
		wrong.add(key.Value, value, keys[key.Value](value, Place{file, key.Line}))
	}
	return wrong
}

// parse returns the mapping that the file is, or nil when there is nothing in it.
func parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, nil
		}
		return nil, syntaxError(text, err)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, at(&second, errors.New("a second document begins: only one is read"))
	} else if err != io.EOF {
		return nil, syntaxError(text, err)
	}
	if err := checkAnchors(&document); err != nil {
		return nil, err
	}
	root := document.Content[0]
	if root.ShortTag() == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, at(root, errors.New("not a mapping: each line is a key, a colon, a space and a value"))
	}
	return root, nil
}

// checkAnchors refuses what makes one part of a file stand for others: nothing here is long enough to
// need it, and a file that is shorter than what it says is a trap.
func checkAnchors(node *yaml.Node) error {
	if node.Anchor != "" || node.Kind == yaml.AliasNode {
		return at(node, errors.New("anchors and aliases are not read; a text that begins with & or * needs quotes"))
	}
	for _, child := range node.Content {
		if err := checkAnchors(child); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key *yaml.Node, known []string, lines map[string]int) error {
	if err := checkText(key); err != nil {
		return err
	}
	if !slices.Contains(known, key.Value) {
		return at(key, fmt.Errorf("unknown key %q%s", key.Value, DidYouMean(nearest(key.Value, known))))
	}
	return checkFirst(key, lines)
}

func checkText(key *yaml.Node) error {
	if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
		return at(key, errors.New("a key that is no text"))
	}
	return nil
}

func checkFirst(key *yaml.Node, lines map[string]int) error {
	if first := lines[key.Value]; first != 0 {
		return at(key, fmt.Errorf("%s is set for the second time, after line %d", key.Value, first))
	}
	return nil
}

// decodeFlag sets a flag. A flag of several values takes a list of them, or one.
func decodeFlag(f *pflag.Flag, value *yaml.Node, key Place) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok || value.Kind != yaml.SequenceNode {
		text, err := scalar(value, f.Value.Type())
		if err != nil {
			return err
		}
		return set(f, text, key.String())
	}
	if err := list.Replace(nil); err != nil {
		return err
	}
	for _, element := range value.Content {
		text, err := scalar(element, f.Value.Type())
		if err == nil {
			err = list.Append(text)
		}
		if err != nil {
			return at(element, err)
		}
	}
	given(f, key.String())
	return nil
}

// scalar is the text of a value that has the YAML type that suits the type of a flag. YAML guesses
// types: a flag of text does not take 012 or 1e3, lest the next reader of the file takes it for a number.
func scalar(value *yaml.Node, flagType string) (string, error) {
	tag := value.ShortTag()
	switch {
	case value.Kind == yaml.SequenceNode:
		return "", errors.New("a list, where one value is wanted")
	case value.Kind == yaml.MappingNode:
		return "", errors.New("a mapping, where one value is wanted")
	case tag == "!!null":
		return "", errors.New(`no value; the empty text is ""`)
	}
	want := "!!str"
	var problem string
	switch flagType {
	case "bool":
		want, problem = "!!bool", "neither true nor false"
	case "int", "int64":
		want, problem = "!!int", "not a whole number"
	case "duration":
		problem = "a duration without unit, as in 300ms, 30s or 1m"
	default:
		problem = "not a text: it needs quotes"
	}
	if tag == want {
		return value.Value, nil
	}
	if tag == "!!str" {
		return "", fmt.Errorf("the text %q is %s", value.Value, problem)
	}
	return "", fmt.Errorf("%s is %s", value.Value, problem)
}
