package dotstool

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/dynamic"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// parseObject parses an object of JSON. Its members are properties by name; what is null is to be
// unset. Unlike peers of dots-json, who skip them, it refuses members that the type lacks: a person
// has written them.
func parseObject(s *schema.Struct, text []byte) (o *dynamic.Object, props value.PropertySet, err error) {
	nulls, err := members(s, text)
	if err != nil {
		return nil, 0, err
	}
	instance, props, err := dynamic.ParseJSON(nil, s, text)
	if err != nil {
		return nil, 0, err
	}
	if keys := s.Keys(); props&keys != keys {
		return nil, 0, fmt.Errorf("the key of %s is missing: %v", s.Name, names(s, keys&^props))
	}
	o, _, err = dynamic.Decode(s, instance)
	return o, props | nulls, err
}

// members checks the names of an object's members, and returns the properties that are null.
func members(s *schema.Struct, text []byte) (nulls value.PropertySet, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	switch t, err := d.ReadToken(); {
	case errors.Is(err, io.EOF):
		return 0, errors.New("no JSON object")
	case err != nil:
		return 0, err
	case t.Kind() != '{':
		return 0, errors.New("no JSON object, but another value")
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return 0, err
		}
		p := s.ByName(name.String())
		if p == nil {
			return 0, fmt.Errorf("%s has no property %.255q", s.Name, name.String())
		}
		if d.PeekKind() == 'n' {
			nulls |= 1 << p.Tag
		}
		if err := d.SkipValue(); err != nil {
			return 0, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return 0, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return 0, errors.New("more than one JSON object")
	}
	return nulls, nil
}
