package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxFileBytes is far more than every setting with hundreds of expressions takes, and keeps what is
// named by mistake, a device or a log, out of memory.
const maxFileBytes = 1 << 20

// A Decoder takes the value of one key of a file. origin is where it stands, as file:line.
type Decoder func(value *yaml.Node, origin string) error

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
			keys[f.Name] = func(value *yaml.Node, origin string) error { return decodeFlag(f, value, origin) }
		}
	})
	return keys
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
	known := slices.Sorted(maps.Keys(keys))
	lines := map[string]int{} // of the keys so far
	for pair := range slices.Chunk(root.Content, 2) {
		key, value := pair[0], pair[1]
		err := checkKey(key, known, lines)
		if err == nil {
			lines[key.Value] = key.Line
			if err = keys[key.Value](value, origin(path, key.Line)); err != nil {
				err = at(value, fmt.Errorf("%s: %w", key.Value, err))
			}
		}
		if err != nil {
			wrong = append(wrong, place(path, err))
		}
	}
	return errors.Join(wrong...)
}

// parse returns the mapping that the file is, or nil when there is nothing in it.
func parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if err == io.EOF {
			return nil, nil
		}
		return nil, syntaxError(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, at(&second, errors.New("a second document begins: only one is read"))
	} else if err != io.EOF {
		return nil, syntaxError(err)
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
	if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
		return at(key, errors.New("a key that is no text"))
	}
	if !slices.Contains(known, key.Value) {
		return at(key, fmt.Errorf("unknown key %q%s", key.Value, DidYouMean(nearest(key.Value, known))))
	}
	if first := lines[key.Value]; first != 0 {
		return at(key, fmt.Errorf("%s is set for the second time, after line %d", key.Value, first))
	}
	return nil
}

// decodeFlag sets a flag. A flag of several values takes a list of them, or one.
func decodeFlag(f *pflag.Flag, value *yaml.Node, origin string) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok || value.Kind != yaml.SequenceNode {
		text, err := scalar(value, f.Value.Type())
		if err != nil {
			return err
		}
		return set(f, text, origin)
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
	f.Changed = true
	annotate(f, originAnnotation, origin)
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
	case "int":
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

// lineError is an error about a line of the file.
type lineError struct {
	line int // 0: not known
	error
}

func (e lineError) Unwrap() error { return e.error }

// at says where in the file an error is, unless it says so itself.
func at(node *yaml.Node, err error) error {
	if inner := (lineError{}); errors.As(err, &inner) {
		return lineError{inner.line, err}
	}
	return lineError{node.Line, err}
}

// syntaxError takes the line out of an error of the YAML parser, whose messages are "yaml: line 3: …",
// or "yaml: …" in the first line and where it does not tell. An anchor that is not known is most
// often none: *.example is a pattern to who writes it.
func syntaxError(err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(message, "unknown anchor") {
		return fmt.Errorf("%s; a text that begins with * needs quotes", message)
	}
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, problem, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return lineError{line, errors.New(problem)}
			}
		}
	}
	return errors.New(message)
}

// place puts the path before an error, and its line.
func place(path string, err error) error {
	if inner := (lineError{}); errors.As(err, &inner) && inner.line > 0 {
		path = origin(path, inner.line)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func origin(path string, line int) string { return fmt.Sprintf("%s:%d", path, line) }
