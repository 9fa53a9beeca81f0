package processcontext

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

var (
	errNoValue = errors.New("an attribute without a value")
	errNoKey   = errors.New("an attribute without a key")
	errNotUTF8 = errors.New("an attribute that is not UTF-8")
	errTooMany = fmt.Errorf("more than %d attributes", maxAttributes)
)

// ParseResourceAttributes parses the value of the environment variable OTEL_RESOURCE_ATTRIBUTES: by
// OpenTelemetry's specification of resource SDKs a list as in W3C Baggage, key1=value1,key2=value2,
// without properties. White space around keys and values is not part of them, and both are
// percent-decoded. As there, characters outside of baggage-octet need not be encoded, and after any
// error nothing of the text counts. Of several attributes with the same key the last counts.
func ParseResourceAttributes(text string) ([]Attribute, error) {
	if strings.Trim(text, whiteSpace) == "" {
		return nil, nil
	}
	var list []Attribute
	for member := range strings.SplitSeq(text, ",") {
		a, err := parseAttribute(member)
		if err == nil && len(list) == maxAttributes {
			err = errTooMany
		}
		if err != nil {
			return nil, fmt.Errorf("parsing OTEL_RESOURCE_ATTRIBUTES: %w", err)
		}
		list = append(list, a)
	}
	return list, nil
}

// whiteSpace is what OWS of W3C Baggage is made of.
const whiteSpace = " \t"

func parseAttribute(member string) (Attribute, error) {
	key, value, ok := strings.Cut(member, "=")
	if !ok {
		return Attribute{}, errNoValue
	}
	key, err1 := url.PathUnescape(strings.Trim(key, whiteSpace))
	value, err2 := url.PathUnescape(strings.Trim(value, whiteSpace))
	switch {
	case err1 != nil:
		return Attribute{}, err1
	case err2 != nil:
		return Attribute{}, err2
	case key == "":
		return Attribute{}, errNoKey
	case !utf8.ValidString(key) || !utf8.ValidString(value):
		return Attribute{}, errNotUTF8
	}
	return Attribute{key, value}, nil
}
