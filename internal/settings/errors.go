package settings

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// wrongs is all that is wrong in a mapping or list: each a lineError.
type wrongs []error

func (w wrongs) Error() string { return errors.Join(w...).Error() }

// add puts a key, or [index], before what is wrong in its value.
func (w *wrongs) add(key string, value *yaml.Node, err error) {
	if several, ok := err.(wrongs); ok {
		for _, one := range several {
			*w = append(*w, at(value, under(key, one)))
		}
	} else if err != nil {
		*w = append(*w, at(value, under(key, err)))
	}
}

// err is nil when nothing is wrong.
func (w wrongs) err() error {
	if len(w) == 0 {
		return nil
	}
	return w
}

// keyError is an error about the value of a key: a.b[0].c.
type keyError struct {
	path string
	error
}

func (e keyError) Error() string { return e.path + ": " + e.error.Error() }
func (e keyError) Unwrap() error { return e.error }

// under is what an error in the value of a key is to who reads the whole file.
func under(key string, err error) error {
	inner := keyError{}
	if !errors.As(err, &inner) {
		return keyError{key, err}
	}
	whole := err
	if !strings.HasPrefix(inner.path, "[") {
		key += "."
	}
	err = keyError{key + inner.path, inner.error}
	if of := (lineError{}); errors.As(whole, &of) {
		err = lineError{of.line, err}
	}
	return err
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
// often none: *.example is a pattern to who writes it, or a secret; so it is not shown.
func syntaxError(text []byte, err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		before, _, _ := bytes.Cut(text, []byte("*"+name))
		return lineError{1 + bytes.Count(before, []byte("\n")), errors.New("an alias of no anchor; a text that begins with * needs quotes")}
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
		path = Place{path, inner.line}.String()
	}
	return fmt.Errorf("%s: %w", path, err)
}
