package processcontext

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"gotest.tools/v3/assert"
)

// payloadHex is a payload by hand.
const payloadHex = "" +
	"0aa401" +
	"0a1a" + "0a0c" + "736572766963652e6e616d65" + "120a" + "0a08" + "636865636b6f7574" +
	"0a3d" + "0a13" + "736572766963652e696e7374616e63652e6964" + "1226" + "0a24" +
	"31323364383434342d326337652d343665332d383966362d363231373838306637313233" +
	"0a25" + "0a1b" + "6465706c6f796d656e742e656e7669726f6e6d656e742e6e616d65" + "1206" + "0a04" + "70726f64" +
	"0a20" + "0a16" + "74656c656d657472792e73646b2e6c616e6775616765" + "1206" + "0a04" + "6a617661" +
	"122e" + "0a1a" + "7468726561646c6f63616c2e736368656d615f76657273696f6e" + "1210" + "0a0e" +
	"746c73646573635f76315f646576" +
	"124f" + "0a1d" + "7468726561646c6f63616c2e6174747269627574655f6b65795f6d6170" + "122e" + "2a2c" +
	"0a1c" + "0a1a" + "64617461646f672e6c6f63616c5f726f6f745f7370616e5f6964" +
	"0a0c" + "0a0a" + "687474702e726f757465"

// foreignHex was published by libdatadog: @datadog/libdatadog-extras 0.21.0 in Node.js.
const foreignHex = "" +
	"0aaf020a1a0a0c736572766963652e6e616d65120a0a08636865636b6f75740a3d0a13736572766963652e696e7374616e63652e6964" +
	"12260a2431323364383434342d326337652d343665332d383966362d3632313738383066373132330a160a0f736572766963652e7665" +
	"7273696f6e12030a01370a250a1b6465706c6f796d656e742e656e7669726f6e6d656e742e6e616d6512060a0470726f640a220a1674" +
	"656c656d657472792e73646b2e6c616e677561676512080a066e6f64656a730a200a1574656c656d657472792e73646b2e7665727369" +
	"6f6e12070a05312e322e330a220a1274656c656d657472792e73646b2e6e616d65120c0a0a6c696264617461646f670a130a09686f73" +
	"742e6e616d6512060a04686f73740a140a0c636f6e7461696e65722e696412040a026331121d0a1464617461646f672e70726f636573" +
	"735f7461677312050a03613a6212260a1a7468726561646c6f63616c2e736368656d615f76657273696f6e12080a06746c735f763112" +
	"4f0a1d7468726561646c6f63616c2e6174747269627574655f6b65795f6d6170122e2a2c0a1c0a1a64617461646f672e6c6f63616c5f" +
	"726f6f745f7370616e5f69640a0c0a0a687474702e726f757465"

const instance = "123d8444-2c7e-46e3-89f6-6217880f7123"

func TestDecodeVectors(t *testing.T) {
	keys := []string{"datadog.local_root_span_id", "http.route"}
	for name, test := range map[string]struct {
		payload string
		want    Context
	}{
		"by hand": {payloadHex, Context{
			Resource: []Attribute{{"service.name", "checkout"}, {"service.instance.id", instance},
				{"deployment.environment.name", "prod"}, {"telemetry.sdk.language", "java"}},
			Schema: "tlsdesc_v1_dev", Keys: keys,
		}},
		"libdatadog": {foreignHex, Context{
			Resource: []Attribute{{"service.name", "checkout"}, {"service.instance.id", instance},
				{"service.version", "7"}, {"deployment.environment.name", "prod"}, {"telemetry.sdk.language", "nodejs"},
				{"telemetry.sdk.version", "1.2.3"}, {"telemetry.sdk.name", "libdatadog"}, {"host.name", "host"},
				{"container.id", "c1"}},
			Schema: "tls_v1", Keys: keys,
		}},
	} {
		got, err := decode(unhex(t, test.payload))
		assert.Check(t, err == nil && reflect.DeepEqual(got, test.want), "%s: %+v, %v", name, got, err)
	}
	encoded := resource(pair("service.name", text("checkout")), pair("service.instance.id", text(instance)),
		pair("deployment.environment.name", text("prod")), pair("telemetry.sdk.language", text("java"))) +
		other(pair(schemaKey, text("tlsdesc_v1_dev"))) + other(pair(keyMapKey, array(text(keys[0]), text(keys[1]))))
	assert.Check(t, encoded == string(unhex(t, payloadHex)), "the encoder of the tests: %x", encoded)
}

// What tests encode: parts of messages.

func message(field protowire.Number, parts ...string) string {
	b := protowire.AppendTag(nil, field, protowire.BytesType)
	return string(protowire.AppendString(b, strings.Join(parts, "")))
}

func number(field protowire.Number, n uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n))
}

func fixed(field protowire.Number) string {
	return string(protowire.AppendFixed64(protowire.AppendTag(nil, field, protowire.Fixed64Type), 1))
}

func group(field protowire.Number, depth int) string {
	var open, end []byte
	for range depth {
		open = protowire.AppendTag(open, field, protowire.StartGroupType)
		end = protowire.AppendTag(end, field, protowire.EndGroupType)
	}
	return string(open) + string(end)
}

func text(s string) string                 { return message(textField, s) }
func array(values ...string) string        { return message(arrayField, elements(values...)) }
func pair(key string, value string) string { return message(1, key) + message(2, value) }
func other(keyValue string) string         { return message(2, keyValue) }

func elements(values ...string) (list string) {
	for _, v := range values {
		list += message(1, v)
	}
	return list
}

func resource(keyValues ...string) string { return message(1, elements(keyValues...)) }

func TestDecode(t *testing.T) {
	schema, keys := pair(schemaKey, text("tls_v1")), pair(keyMapKey, array(text("a"), text("b")))
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, pair(fmt.Sprintf("key%d", i), text("x")))
		}
		return list
	}
	for _, test := range []struct {
		name, payload string
		want          Context
	}{
		{"nothing", "", Context{}},
		{"an empty resource", resource(), Context{}},
		{"no key", resource(message(2, text("x"))), Context{Resource: []Attribute{{"", "x"}}}},
		{"no value", resource(message(1, "k")), Context{}},
		{"an empty value", resource(pair("k", "")), Context{}},
		{"an empty text", resource(pair("k", text(""))), Context{Resource: []Attribute{{"k", ""}}}},
		{"other types", resource(pair("b", number(2, 1)), pair("i", number(3, 7)), pair("d", fixed(4)),
			pair("a", array()), pair("l", message(6)), pair("y", message(7, "\xff")), pair("t", text("t"))),
			Context{Resource: []Attribute{{"t", "t"}}}},
		{"field numbers with other types", number(1, 5) + fixed(2) + resource(fixed(1)+number(2, 1)+pair("k",
			number(1, 5)+number(5, 5)+text("t")+message(2)+fixed(3)+number(4, 1)+number(6, 1)+number(7, 1))),
			Context{Resource: []Attribute{{"k", "t"}}}},
		{"unknown fields", message(15, "x") + number(16, 1) + group(9, 100) + message(1, number(2, 3), message(3, "x"),
			message(1, message(3, "x"), pair("k", text("t")+message(8, "x")))),
			Context{Resource: []Attribute{{"k", "t"}}}},

		{"an attribute twice", resource(pair("k", text("1")), pair("l", text("2")), pair("k", text("3"))),
			Context{Resource: []Attribute{{"k", "3"}, {"l", "2"}}}},
		{"an attribute twice, then a number", resource(pair("k", text("1")), pair("k", number(3, 1))), Context{}},
		{"a resource twice", resource(pair("k", text("1"))) + resource(pair("l", text("2"))),
			Context{Resource: []Attribute{{"k", "1"}, {"l", "2"}}}},
		{"a key twice", resource(message(1, "k") + pair("l", text("1"))), Context{Resource: []Attribute{{"l", "1"}}}},
		{"a value twice", resource(pair("k", text("1")) + message(2, text("2"))),
			Context{Resource: []Attribute{{"k", "2"}}}},
		{"a value, then an empty one", resource(pair("k", text("1")) + message(2)),
			Context{Resource: []Attribute{{"k", "1"}}}},
		{"two types", resource(pair("k", text("1")+number(2, 1)), pair("l", number(2, 1)+text("1"))),
			Context{Resource: []Attribute{{"l", "1"}}}},

		{"not UTF-8", resource(pair("k\xff", text("1")), pair("l", text("\xc0\x80")), pair("m", text("µ"))),
			Context{Resource: []Attribute{{"m", "µ"}}}},
		{"256 attributes, some again", resource(append(many(256), many(200)...)...), Context{}},

		{"schema and keys", other(keys) + other(schema), Context{Schema: "tls_v1", Keys: []string{"a", "b"}}},
		{"schema and keys of the resource", resource(schema, keys),
			Context{Resource: []Attribute{{schemaKey, "tls_v1"}}, Schema: "tls_v1", Keys: []string{"a", "b"}}},
		{"those of the process count more", resource(schema, keys) + other(pair(schemaKey, text("x"))) +
			other(pair(keyMapKey, array())),
			Context{Resource: []Attribute{{schemaKey, "tls_v1"}}, Schema: "x", Keys: []string{}}},
		{"unless they are something else", resource(schema, keys) + other(pair(schemaKey, number(3, 1))) +
			other(pair(keyMapKey, text("a"))),
			Context{Resource: []Attribute{{schemaKey, "tls_v1"}}, Schema: "tls_v1", Keys: []string{"a", "b"}}},
		{"schema not UTF-8", other(pair(schemaKey, text("\xff"))), Context{}},
		{"keys that are none", other(pair(keyMapKey, array(text("a"), number(3, 1), "", text("\xff"), array(text("x")),
			text("e")))), Context{Keys: []string{"a", "", "", "", "", "e"}}},
		{"keys in parts", other(pair(keyMapKey, array(text("a"))+array(text("b"))) + message(2, array(text("c")))),
			Context{Keys: []string{"a", "b", "c"}}},
		{"keys in parts, but for a text", other(pair(keyMapKey, array(text("a"))+text("x")+array(text("b")))),
			Context{Keys: []string{"b"}}},
		{"too many keys", other(pair(keyMapKey, array(slices.Repeat([]string{text("k")}, 300)...))),
			Context{Keys: slices.Repeat([]string{"k"}, 256)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decode([]byte(test.payload))
			if strings.HasPrefix(test.name, "256") {
				assert.Assert(t, err == nil && len(got.Resource) == 256, "%d, %v", len(got.Resource), err)
				return
			}
			assert.Check(t, err == nil && reflect.DeepEqual(got, test.want), "%+v, %v", got, err)
		})
	}
	for name, payload := range map[string]string{
		"no protobuf":              "\xff\xff\xff\xff",
		"field 0":                  "\x02\x00",
		"a group without end":      "\x0b",
		"an end without group":     "\x0c",
		"groups within groups":     group(9, 20_000),
		"longer than the message":  resource(pair("k", text("v"))) + "\x0a\x05x",
		"longer than the resource": message(1, "\x0a\x05x"),
		"longer than the pair":     resource("\x0a\x05x"),
		"longer than the value":    resource(pair("k", "\x0a\x05x")),
		"longer than an array":     other(pair(keyMapKey, message(5, "\x0a\x05x"))),
		"longer than an element":   other(pair(keyMapKey, array("\x0a\x05x"))),
		"a length of 64 bits":      "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a varint without end":     "\x08\x80",
		"257 attributes":           resource(many(257)...),
		"257 others":               other(strings.Join(many(1), "")) + otherMany(many(257)),
	} {
		c, err := decode([]byte(payload))
		assert.Check(t, err != nil, "%s: %+v", name, c)
	}
}

func otherMany(list []string) (payload string) {
	for _, keyValue := range list {
		payload += other(keyValue)
	}
	return payload
}

func TestHasThreadContexts(t *testing.T) {
	for schema, want := range map[string]bool{
		"tlsdesc_v1_dev": true, "tls_v1": true, "": false, "tls_v2": false, "TLS_v1": false, "tls_v1 ": false,
		"go_pprof_labels_v1": false, "nodejs_v1_dev": false,
	} {
		c := Context{Schema: schema}
		assert.Check(t, c.HasThreadContexts() == want, "%q: not %v", schema, want)
	}
}
