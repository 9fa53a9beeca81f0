package dotstool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/value"
)

func TestParseObject(t *testing.T) {
	for _, test := range []struct {
		json  string
		valid value.PropertySet
		props value.PropertySet
		err   string
	}{
		{json: `{"id":7,"mode":4}`, valid: 0b1010, props: 0b1010},
		{json: ` {"name":null,"id":7, "place":{"floor":null}} `, valid: 0b10010, props: 0b10110},
		{json: `{"id":7,"nam":"x"}`, err: `Room has no property "nam"`},
		{json: `{"id":null}`, err: "the key of Room is missing: [id]"},
		{json: `{}`, err: "the key of Room is missing: [id]"},
		{json: ``, err: "no JSON object"},
		{json: `[1]`, err: "no JSON object, but another value"},
		{json: `{"id":7} {"id":8}`, err: "more than one JSON object"},
		{json: `{"id":7`, err: "unexpected EOF"},
		{json: `{"id":-7}`, err: "id"},
		{json: `{"id":7,"mode":2}`, err: "number is no tag of the enum"},
	} {
		o, props, err := parseObject(room, []byte(test.json))
		switch {
		case test.err != "":
			assert.Check(t, err != nil && strings.Contains(err.Error(), test.err),
				"%s: %v, want %q", test.json, err, test.err)
		case err != nil:
			t.Errorf("%s: %v", test.json, err)
		case o.Valid() != test.valid || props != test.props:
			t.Errorf("%s: valid %b, transmitted %b; want %b, %b", test.json, o.Valid(), props, test.valid, test.props)
		}
	}
}

func FuzzParseObject(f *testing.F) {
	f.Add([]byte(`{"id":7,"name":null,"place":{"floor":"g","area":1e3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, props, err := parseObject(room, text)
		if err == nil && (o.Valid()&^props != 0 || props&room.Keys() != room.Keys()) {
			t.Errorf("%q: valid %b, transmitted %b", text, o.Valid(), props)
		}
	})
}

func TestLines(t *testing.T) {
	var got []string
	each := func(text []byte) error {
		got = append(got, string(text))
		if string(text) == "bad" {
			return errors.New("no object")
		}
		return nil
	}
	if err := Lines(strings.NewReader("a\r\n\n b \nc"))(each); err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", got, err)
	}
	got = nil
	err := Lines(strings.NewReader("a\n\nbad\nc"))(each)
	assert.Check(t, err != nil && err.Error() == "line 3: no object" && len(got) == 2, "%q, %v", got, err)
}
