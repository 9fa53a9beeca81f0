package processcontext

import (
	"reflect"
	"testing"
	"unicode/utf8"

	upstream "go.opentelemetry.io/proto/otlp/processcontext/v1development"
	"gotest.tools/v3/assert"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Whatever the messages of OpenTelemetry take, the decoder takes, and finds the same in it.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{payloadHex, foreignHex} {
		f.Add(unhex(f, seed))
	}
	f.Add([]byte(resource(pair("k", text("1")+array(text("a"))+array(number(3, 1)))) +
		other(pair(keyMapKey, array(text("a"))+array(text("b"))))))
	f.Add([]byte(group(9, 3) + resource(pair(schemaKey, number(2, 1)))))
	f.Add([]byte(resource(pair("k", text("1"))+message(2)) + other(pair(schemaKey, text("\xff")))))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := decode(payload)
		for _, a := range c.Resource {
			assert.Check(t, utf8.ValidString(a.Key) && utf8.ValidString(a.Value), "%q is not UTF-8", a)
		}
		assert.Check(t, len(c.Resource) <= maxAttributes && len(c.Keys) <= maxKeys,
			"%d attributes, %d keys", len(c.Resource), len(c.Keys))
		var message upstream.ProcessContext
		if proto.Unmarshal(payload, &message) != nil {
			return
		}
		want, limited := contextOf(&message)
		if limited {
			return
		}
		assert.Check(t, err == nil && reflect.DeepEqual(c, want), "%+v, %v\nwant %+v", c, err, want)
	})
}

// contextOf converts a decoded message. limited: it has more than is taken.
func contextOf(m *upstream.ProcessContext) (c Context, limited bool) {
	resource, others := lastOf(m.GetResource().GetAttributes()), lastOf(m.GetAttributes())
	for _, kv := range resource {
		if v, ok := kv.GetValue().GetValue().(*common.AnyValue_StringValue); ok {
			c.Resource = append(c.Resource, Attribute{kv.GetKey(), v.StringValue})
		}
	}
	for _, list := range [][]*common.KeyValue{resource, others} { // the latter count
		for _, kv := range list {
			switch v := kv.GetValue().GetValue().(type) {
			case *common.AnyValue_StringValue:
				if kv.GetKey() == schemaKey {
					c.Schema = v.StringValue
				}
			case *common.AnyValue_ArrayValue:
				if kv.GetKey() == keyMapKey {
					c.Keys = []string{}
					for _, element := range v.ArrayValue.GetValues()[:min(maxKeys, len(v.ArrayValue.GetValues()))] {
						c.Keys = append(c.Keys, element.GetStringValue())
					}
				}
			}
		}
	}
	return c, len(resource) > maxAttributes || len(others) > maxAttributes
}

// lastOf returns the last attribute of each key, at the place of the first.
func lastOf(list []*common.KeyValue) (unique []*common.KeyValue) {
	places := make(map[string]int)
	for _, kv := range list {
		place, known := places[kv.GetKey()]
		if known {
			unique[place] = kv
			continue
		}
		places[kv.GetKey()] = len(unique)
		unique = append(unique, kv)
	}
	return unique
}

// Whatever an environment has, the parser does not panic, and what it returns is UTF-8.
func FuzzParseResourceAttributes(f *testing.F) {
	f.Add("service.name=shop,service.namespace=a%2Cb")
	f.Add("a=%,=b")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseResourceAttributes(text)
		assert.Check(t, (err == nil || list == nil) && len(list) <= maxAttributes, "%q, %v", list, err)
		for _, a := range list {
			assert.Check(t, a.Key != "" && utf8.ValidString(a.Key) && utf8.ValidString(a.Value), "%q", a)
		}
	})
}
