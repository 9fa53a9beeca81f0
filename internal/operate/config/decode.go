package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// maxFileBytes is far more than every setting with hundreds of expressions needs, and keeps a
	// device or a log that is named by mistake out of memory.
	maxFileBytes = 1 << 20

	// maxNameBytes is enough for the name of a header.
	maxNameBytes = 256
)

// readFile also reads pipes, which is what <(...) of a shell is. The error is without the path.
func readFile(path string) ([]byte, error) {
	content, err := readSome(path, maxFileBytes+1)
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("more than %d bytes are no configuration", maxFileBytes)
	}
	return content, err
}

// readSome reads at most limit bytes. The error is without the path.
func readSome(path string, limit int64) (content []byte, err error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		content, err = io.ReadAll(io.LimitReader(f, limit))
	}
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return content, err
}

// decode sets what a YAML file says: one mapping, or nothing at all. The error has a line for
// everything that is wrong, with its place.
func (s *Settings) decode(file string, content []byte) error {
	d := decoder{settings: s, file: file}
	if root := d.parse(content); root != nil {
		d.mapping(root, s.fields, "")
	}
	return errors.Join(d.wrong...)
}

type decoder struct {
	settings *Settings
	file     string
	wrong    []error
}

// fail records what is wrong at a line (0: unknown) and a path, which is empty for the whole file.
func (d *decoder) fail(line int, path string, err error) {
	place := d.file
	if line > 0 {
		place = d.place(line)
	}
	if path != "" {
		place += ": " + path
	}
	d.wrong = append(d.wrong, fmt.Errorf("%s: %w", place, err))
}

func (d *decoder) place(line int) string { return d.file + ":" + strconv.Itoa(line) }

var errNotMapping = errors.New("not a mapping: each line is a key, a colon, a space and a value")

// parse returns the mapping that the file is, or nil when it is empty or wrong.
func (d *decoder) parse(content []byte) *yaml.Node {
	parser := yaml.NewDecoder(bytes.NewReader(content))
	var document, second yaml.Node
	if err := parser.Decode(&document); err != nil {
		if !errors.Is(err, io.EOF) {
			d.syntaxError(content, err)
		}
		return nil
	}
	if err := parser.Decode(&second); err == nil {
		d.fail(second.Line, "", errors.New("a second document begins: only one is read"))
		return nil
	} else if !errors.Is(err, io.EOF) {
		d.syntaxError(content, err)
		return nil
	}
	root := document.Content[0]
	switch {
	case d.hasAnchor(&document) || root.ShortTag() == "!!null":
		return nil
	case root.Kind != yaml.MappingNode:
		d.fail(root.Line, "", errNotMapping)
		return nil
	}
	return root
}

// syntaxError moves the line from an error of the YAML parser to its place. Its messages are "yaml:
// line 3: ...", or "yaml: ..." in the first line and where the line is unknown. The name of an
// unknown anchor is not shown: *.example is a pattern to its author, or a secret.
func (d *decoder) syntaxError(content []byte, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		before, _, _ := bytes.Cut(content, []byte("*"+name))
		d.fail(1+bytes.Count(before, []byte("\n")), "",
			errors.New("an alias of no anchor; a text that begins with * needs quotes"))
		return
	}
	line := 0
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, problem, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, message = n, problem
			}
		}
	}
	d.fail(line, "", errors.New(message))
}

// hasAnchor refuses anchors and aliases: nothing here is long enough to need them, and a file that
// is shorter than what it expands to is a trap.
func (d *decoder) hasAnchor(node *yaml.Node) bool {
	if node.Anchor != "" || node.Kind == yaml.AliasNode {
		d.fail(node.Line, "", errors.New("anchors and aliases are not read; a text that begins with & or * needs "+
			"quotes"))
		return true
	}
	return slices.ContainsFunc(node.Content, d.hasAnchor)
}

func (d *decoder) mapping(node *yaml.Node, fields []field, path string) {
	lines := make(map[string]int) // of the keys so far
	for pair := range slices.Chunk(node.Content, 2) {
		key, value := pair[0], pair[1]
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key.Value })
		err := checkKey(key, lines)
		if err == nil && i < 0 {
			err = unknownKey(key.Value, fields)
		}
		if err != nil {
			d.fail(key.Line, path, err)
			continue
		}
		lines[key.Value] = key.Line
		d.value(key, value, &fields[i], join(path, key.Value))
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func checkKey(key *yaml.Node, lines map[string]int) error {
	if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
		return errors.New("a key that is no text")
	}
	if first := lines[key.Value]; first != 0 {
		return fmt.Errorf("%s is set for the second time, after line %d", key.Value, first)
	}
	return nil
}

// unknownKey shows the key, unless that looks like an endpoint or a secret which stands in the
// wrong place.
func unknownKey(key string, fields []field) error {
	if checkName(key) != nil {
		return errors.New("unknown key")
	}
	var known []string
	for _, f := range fields {
		known = append(known, f.key)
	}
	return fmt.Errorf("unknown key %q%s", key, DidYouMean(Nearest(key, known)))
}

// nameCharacters are those of keys and of headers' names. What has others may be a name and a value
// that were written wrongly, and is not shown.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

func checkName(name string) error {
	if len(name) == 0 || len(name) > maxNameBytes || strings.Trim(name, nameCharacters) != "" {
		return errors.New("a name with other characters than letters, digits, hyphens, underscores and dots")
	}
	return nil
}

// value decodes the value of a key into its field.
func (d *decoder) value(key, node *yaml.Node, f *field, path string) {
	d.settings.sources[path] = source{kind: fromFile, detail: d.place(key.Line)}
	l, isList := settable(f.value).(list)
	switch kind := f.value.Kind(); {
	case isList:
		d.list(node, f, l, path)
	case kind != reflect.Struct && kind != reflect.Slice && kind != reflect.Map:
		d.check(node, path, d.scalar(node, f))
	case node.ShortTag() == "!!null": // empty: all lines may be comments
	case kind == reflect.Slice:
		d.sections(node, f.value, path)
	case node.Kind == yaml.MappingNode && kind == reflect.Map:
		d.texts(node, f, path)
	case node.Kind == yaml.MappingNode:
		d.mapping(node, fieldsOf(f.value, ""), path)
	case kind == reflect.Map: // without the value, which may be a secret
		d.fail(node.Line, path, errors.New("not a mapping of names to texts"))
	default:
		d.fail(node.Line, path, errNotMapping)
	}
}

func (d *decoder) check(node *yaml.Node, path string, err error) {
	if err != nil {
		d.fail(node.Line, path, err)
	}
}

// element is implemented by the elements of lists of sections.
type element interface {
	setDefaults()
	// check reports what is wrong with an element that was decoded, without looking at other files.
	check(s *Settings, path string) error
}

func (d *decoder) sections(node *yaml.Node, slice reflect.Value, path string) {
	if node.Kind != yaml.SequenceNode {
		d.fail(node.Line, path, errors.New("not a list of mappings: each begins with a dash and a space"))
		return
	}
	slice.Set(reflect.MakeSlice(slice.Type(), len(node.Content), len(node.Content)))
	for i, content := range node.Content {
		e, at := slice.Index(i).Addr().Interface().(element), fmt.Sprintf("%s[%d]", path, i)
		e.setDefaults()
		wrong := len(d.wrong)
		switch {
		case content.Kind == yaml.MappingNode:
			d.mapping(content, fieldsOf(slice.Index(i), ""), at)
		case content.ShortTag() != "!!null":
			d.fail(content.Line, at, errNotMapping)
		}
		if len(d.wrong) > wrong {
			continue
		}
		if err := e.check(d.settings, at); err != nil {
			d.fail(content.Line, at, err)
		}
	}
}

// list decodes a list of values. One value may stand alone.
func (d *decoder) list(node *yaml.Node, f *field, l list, path string) {
	f.value.SetZero()
	if node.Kind != yaml.SequenceNode {
		text, err := scalarText(node)
		if err == nil {
			err = addTexts(l, l.split(text))
		}
		d.check(node, path, err)
		return
	}
	for _, content := range node.Content {
		text, err := scalarText(content)
		if err == nil {
			err = l.add(text)
		}
		d.check(content, path, err)
	}
}

// texts decodes a mapping from names to texts, each of which has a source of its own.
func (d *decoder) texts(node *yaml.Node, f *field, path string) {
	texts := reflect.MakeMap(f.value.Type())
	lines := make(map[string]int)
	for pair := range slices.Chunk(node.Content, 2) {
		key, value := pair[0], pair[1]
		err := checkKey(key, nil)
		if err == nil {
			err = checkName(key.Value)
		}
		if err == nil {
			err = checkKey(key, lines)
		}
		if err != nil {
			d.fail(key.Line, path, err)
			continue
		}
		lines[key.Value] = key.Line
		read := scalarText
		if f.tag.Get("secret") == "true" {
			read = secretText
		}
		text, err := read(value)
		d.check(value, join(path, key.Value), err)
		texts.SetMapIndex(reflect.ValueOf(key.Value), reflect.ValueOf(text))
		d.settings.sources[join(path, key.Value)] = source{kind: fromFile, detail: d.place(key.Line)}
	}
	if texts.Len() > 0 { // empty is nil, as by default
		f.value.Set(texts)
	}
}

// secretText is scalarText whose errors do not show the value.
func secretText(node *yaml.Node) (string, error) {
	switch {
	case node.Kind != yaml.ScalarNode:
		return "", errors.New("not a text")
	case node.ShortTag() == "!!null":
		return "", errors.New("no value (--print-config shows none)")
	case node.ShortTag() != "!!str":
		return "", errNeedsQuotes
	}
	return node.Value, nil
}

var errNeedsQuotes = mismatch("not a text: it needs quotes")

func scalarText(node *yaml.Node) (string, error) {
	if err := checkScalar(node); err != nil {
		return "", err
	}
	if node.ShortTag() != "!!str" {
		return "", fmt.Errorf("%s is %w", node.Value, errNeedsQuotes)
	}
	return node.Value, nil
}

func checkScalar(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.SequenceNode:
		return errors.New("a list, where one value is wanted")
	case node.Kind == yaml.MappingNode:
		return errors.New("a mapping, where one value is wanted")
	case node.ShortTag() == "!!null":
		return errors.New(`no value; the empty text is ""`)
	}
	return nil
}

// scalar decodes a single value, which must have the YAML type of the setting's Go type. YAML
// guesses types: 012 or 1e3 is no text, because the next reader of the file takes it for a number.
func (d *decoder) scalar(node *yaml.Node, f *field) error {
	if err := checkScalar(node); err != nil {
		return err
	}
	var err error
	_, isDuration := f.value.Interface().(time.Duration)
	switch tag := node.ShortTag(); {
	case isDuration && tag != "!!str":
		err = durationMismatch(node.Value)
	case isDuration:
		err = setScalar(f, node.Value)
	case f.value.Kind() == reflect.Bool && tag != "!!bool":
		err = mismatch("neither true nor false")
	case f.value.Kind() == reflect.Int && tag != "!!int", f.value.Kind() == reflect.Int64 && tag != "!!int":
		err = f.intMismatch(nil)
	case f.value.Kind() == reflect.Bool, f.value.Kind() == reflect.Int, f.value.Kind() == reflect.Int64:
		err = setScalar(f, node.Value)
	case tag != "!!str":
		err = errNeedsQuotes
	default:
		return setScalar(f, node.Value)
	}
	switch {
	case err == nil:
		return nil
	case node.ShortTag() == "!!str":
		return fmt.Errorf("the text %q is %w", node.Value, err)
	}
	return fmt.Errorf("%s is %w", node.Value, err)
}
