package dynamic

import (
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"correlator/dots/frame"
	"correlator/dots/schema"
)

// headerType returns the type of headers, as far as JSON wants it. Its order is that of package
// frame.
func headerType() *schema.Struct {
	property := func(tag uint32, name string, kind schema.Kind) schema.Property {
		return schema.Property{Tag: tag, Name: name, Type: schema.Builtin(kind)}
	}
	s, err := schema.NewStruct("DotsHeader", schema.Flags{Internal: true}, []schema.Property{
		property(1, "typeName", schema.String),
		property(2, "sentTime", schema.Timepoint),
		property(7, "serverSentTime", schema.Timepoint),
		property(3, "attributes", schema.PropertySet),
		property(5, "sender", schema.Uint32),
		property(8, "fromCache", schema.Uint32),
		property(4, "removeObj", schema.Bool),
		property(6, "isFromMyself", schema.Bool),
		property(9, "subscriptionId", schema.Uint32),
	}, "")
	if err != nil {
		panic(err) // the same at every start
	}
	return s
}

var headers = headerType()

// ErrUnknownType is returned for a message of a type that is not known.
var ErrUnknownType = errors.New("unknown type")

// AppendMessage appends a message of dots-json, as it is sent on a WebSocket: an array of the
// header and the instance. All properties of the instance are in it; those that the header names
// and the instance lacks are unset. An instance that makes the message longer than the limit, or a
// little less, is an error. unset is how many floats are null that are set.
func AppendMessage(
	dst []byte, h *frame.Header, s *schema.Struct, instance []byte, limit int, numbers Numbers,
) (message []byte, unset int, err error) {
	w := jsonWriter{limit: math.MaxInt, numbers: numbers, wanted: true}
	result, err := appendJSON(append(dst, '['), headers, h.Append(nil), &w)
	if err != nil {
		return dst, 0, err
	}
	w.limit = limit
	if result, err = appendJSON(append(result, ','), s, instance, &w); err != nil {
		return dst, 0, err
	}
	return append(result, ']'), w.unset, nil
}

// ParseMessage parses a message of dots-json: its header into h, and its instance, in canonical
// form. The type is the one that find returns for its name; with nil, the error wraps ErrUnknownType.
// With an error, s is the type if it is the instance that is wrong, and nil otherwise.
//
// Peers in C++ write floats that JSON does not have as inf and nan, and the largest ones so rounded that
// they are infinite. These are taken as peers in C++ take them.
func ParseMessage(
	message []byte, h *frame.Header, find func(name []byte) *schema.Struct,
) (instance []byte, s *schema.Struct, err error) {
	instance, s, err = newParser(message).message(h, find)
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		if quoted := quoteNumbers(message); quoted != nil {
			p := newParser(quoted)
			p.isQuoted = true
			return p.message(h, find)
		}
	}
	return instance, s, err
}

func (p parser) message(
	h *frame.Header, find func(name []byte) *schema.Struct,
) (instance []byte, s *schema.Struct, err error) {
	p.isMessage = true
	if err := p.open('['); err != nil {
		return nil, nil, fmt.Errorf("parsing a message: %w", err)
	}
	header, err := p.object(nil, headers, maxNesting)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing a header: %w", err)
	}
	if _, err = h.Decode(header); err != nil {
		return nil, nil, err
	}
	if s = find(h.TypeName); s == nil {
		return nil, nil, fmt.Errorf("%w: %.255s", ErrUnknownType, h.TypeName)
	}
	body, err := p.object(nil, s, maxNesting)
	if err != nil {
		return nil, s, fmt.Errorf("parsing an instance of %s: %w", s.Name, err)
	}
	if err = p.open(']'); err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parsing the end of a message: %w", err)
	}
	instance, _, err = finishParsed(nil, s, body)
	return instance, s, err
}
