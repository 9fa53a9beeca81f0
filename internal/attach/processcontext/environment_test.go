package processcontext

import (
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestParseResourceAttributes(t *testing.T) {
	for text, want := range map[string][]Attribute{
		"":                     nil,
		" \t":                  nil,
		"a=b":                  {{"a", "b"}},
		"a=b,c=d":              {{"a", "b"}, {"c", "d"}},
		" a = b ,\tc=\td ":     {{"a", "b"}, {"c", "d"}},
		"a=":                   {{"a", ""}},
		"a=b=c":                {{"a", "b=c"}}, // baggage-octet has it
		"a=b;c":                {{"a", "b;c"}}, // no property
		"a=b%2Cc%3dd%20":       {{"a", "b,c=d "}},
		"a%2Cb=c":              {{"a,b", "c"}},
		"a=x y\"\\+µ":          {{"a", "x y\"\\+µ"}},
		"a=%C2%B5":             {{"a", "µ"}},
		"a=1,a=2":              {{"a", "1"}, {"a", "2"}},
		"service.name=shop,x=": {{"service.name", "shop"}, {"x", ""}},
	} {
		got, err := ParseResourceAttributes(text)
		assert.Check(t, err == nil && reflect.DeepEqual(got, want), "%q: %q, %v", text, got, err)
	}
	assert.Check(t, Value([]Attribute{{"a", "1"}, {"b", "2"}, {"a", "3"}}, "a") == "3", "not the last value")
	for _, text := range []string{
		"a", ",", "a=b,", ",a=b", "a=b,,c=d", "=b", " =b", "a=b,c", "a=%", "a=%2", "a=%zz", "%=b", "a=%ff", "a=\xff",
		"\xff=a", "a=b,c=%g0", strings.Repeat("a=b,", 256) + "a=b",
	} {
		got, err := ParseResourceAttributes(text)
		assert.Check(t, err != nil && got == nil, "%q: %q, %v", text, got, err)
	}
}
