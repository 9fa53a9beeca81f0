package processcontext

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxAttributes is how many attributes a resource, and the context beside it, may each have: ten
	// times as many as known writers publish.
	maxAttributes = 256
	// maxKeys is how many keys an index of a thread's attribute can name: it has 8 bits.
	maxKeys = 256
)

// Keys of attributes by OTEP 4947.
const (
	schemaKey = "threadlocal.schema_version"
	keyMapKey = "threadlocal.attribute_key_map"
)

// The messages and fields of a payload that are used (processcontext/v1development, resource/v1 and
// common/v1 of OpenTelemetry's protocol):
//
//	message         field  type      content
//	ProcessContext      1  message   Resource
//	                    2  messages  KeyValue: attributes of the process that are none of the resource
//	Resource            1  messages  KeyValue
//	KeyValue            1  text      key
//	                    2  message   AnyValue
//	AnyValue            1  text      ┐
//	                  2-7  other     │ one of these
//	                    5  message   ┘ ArrayValue
//	ArrayValue          1  messages  AnyValue
//
// Messages within these are not decoded, so nothing is nested deeper. By protobuf's rules a message
// that comes twice is merged, of any other field the last one counts, and fields of other numbers or
// types are skipped. Of several attributes with the same key, which OpenTelemetry forbids, the last
// counts, too. What is not UTF-8, for which protobuf would reject the whole payload, is skipped with
// its attribute.

// decode decodes a payload. The result has no header.
func decode(payload []byte) (c Context, err error) {
	var resource, others attributes
	err = fields(payload, func(field protowire.Number, message []byte) error {
		switch field {
		case 1:
			return fields(message, func(field protowire.Number, message []byte) error {
				if field != 1 {
					return nil
				}
				return resource.add(message)
			})
		case 2:
			return others.add(message)
		}
		return nil
	})
	if err != nil {
		return Context{}, fmt.Errorf("decoding its payload: %w", err)
	}
	for _, a := range resource {
		if a.value.kind == textValue {
			c.Resource = append(c.Resource, Attribute{a.key, string(a.value.text)})
		}
	}
	c.Schema = schemaIn(others, resource)
	c.Keys, err = keysIn(others, resource)
	if err != nil {
		return Context{}, fmt.Errorf("decoding its keys: %w", err)
	}
	return c, nil
}

// schemaIn and keysIn search the attributes of the process, then those of the resource, where
// libdatadog had them before July 2026.

func schemaIn(lists ...attributes) string {
	for _, list := range lists {
		if v := list.find(schemaKey); v != nil && v.kind == textValue {
			return string(v.text)
		}
	}
	return ""
}

func keysIn(lists ...attributes) ([]string, error) {
	for _, list := range lists {
		if v := list.find(keyMapKey); v != nil && v.kind == arrayValue {
			return v.texts()
		}
	}
	return nil, nil
}

// attributes have unique keys.
type attributes []attribute

type attribute struct {
	key   string
	value value
}

// add adds an encoded KeyValue. A later one replaces that of the same key.
func (l *attributes) add(keyValue []byte) error {
	var key []byte
	var v value
	err := fields(keyValue, func(field protowire.Number, content []byte) error {
		switch field {
		case 1:
			key = content
		case 2:
			return v.merge(content)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !utf8.Valid(key) || v.kind == textValue && !utf8.Valid(v.text) {
		return nil
	}
	if known := l.find(string(key)); known != nil {
		*known = v
		return nil
	}
	if len(*l) == maxAttributes {
		return fmt.Errorf("it has more than %d attributes", maxAttributes)
	}
	*l = append(*l, attribute{string(key), v})
	return nil
}

func (l attributes) find(key string) *value {
	i := slices.IndexFunc(l, func(a attribute) bool { return a.key == key })
	if i < 0 {
		return nil
	}
	return &l[i].value
}

type valueKind uint8

const (
	noValue valueKind = iota
	textValue
	arrayValue
	otherValue
)

// value is an AnyValue.
type value struct {
	kind   valueKind
	text   []byte
	arrays [][]byte // the encoded ArrayValue, in parts
}

// The fields of AnyValue.
const (
	textField  = 1
	arrayField = 5
	lastField  = 7
)

// merge merges an encoded AnyValue into v.
func (v *value) merge(message []byte) error {
	return allFields(message, func(field protowire.Number, t protowire.Type, content []byte) error {
		switch {
		case field == textField && t == protowire.BytesType:
			*v = value{kind: textValue, text: content}
		case field == arrayField && t == protowire.BytesType:
			if v.kind != arrayValue {
				*v = value{kind: arrayValue}
			}
			v.arrays = append(v.arrays, content)
		case field > textField && field <= lastField && t == anyValueTypes[field]:
			*v = value{kind: otherValue}
		}
		return nil
	})
}

// anyValueTypes are the types of AnyValue's other fields: bool, int64, double, KeyValueList, bytes.
var anyValueTypes = [lastField + 1]protowire.Type{
	2: protowire.VarintType, 3: protowire.VarintType, 4: protowire.Fixed64Type,
	6: protowire.BytesType, 7: protowire.BytesType,
}

// texts returns the texts of an array, never nil. What is none is empty, so that the others keep
// their indices.
func (v *value) texts() ([]string, error) {
	texts := []string{}
	for _, array := range v.arrays {
		err := fields(array, func(field protowire.Number, message []byte) error {
			if field != 1 || len(texts) == maxKeys {
				return nil
			}
			var element value
			if err := element.merge(message); err != nil {
				return err
			}
			text := ""
			if element.kind == textValue && utf8.Valid(element.text) {
				text = string(element.text)
			}
			texts = append(texts, text)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// fields calls each with the texts, bytes and messages of a message, in their order.
func fields(message []byte, each func(field protowire.Number, content []byte) error) error {
	return allFields(message, func(field protowire.Number, t protowire.Type, content []byte) error {
		if t != protowire.BytesType {
			return nil
		}
		return each(field, content)
	})
}

// allFields calls each with all fields of a message; content is that of texts, bytes and messages.
func allFields(message []byte, each func(field protowire.Number, t protowire.Type, content []byte) error) error {
	for len(message) > 0 {
		field, t, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(field, t, message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		var content []byte
		if t == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(message)
		}
		if err := each(field, t, content); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
