package profile

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAttributes(t *testing.T) {
	if a := NewAttributes(nil); a != (Attributes{}) || a.Bytes() != 0 || len(maps.Collect(a.All())) != 0 {
		t.Errorf("%+v", a)
	}
	list := []Attribute{{"b", "1"}, {"a", "2"}, {"b", "3"}, {"", ""}, {"c\xff\x00", "\x00"}}
	a := NewAttributes(slices.Clone(list))
	var got []Attribute
	for key, value := range a.All() {
		got = append(got, Attribute{key, value})
	}
	want := []Attribute{{"", ""}, {"a", "2"}, {"b", "3"}, {"c\xff\x00", "\x00"}}
	assert.Check(t, slices.Equal(got, want), "%q", got)
	assert.Check(t, a.Bytes() == 4*4+4+4, "%d bytes", a.Bytes())
	for key := range a.All() { // ends when the loop does
		if key == "a" {
			break
		}
	}
	same := NewAttributes([]Attribute{{"c\xff\x00", "\x00"}, {"b", "3"}, {"", ""}, {"a", "2"}})
	other := NewAttributes([]Attribute{{"a", "2"}})
	assert.Check(t, a == same && a.Compare(same) == 0 && a != other && a.Compare(other) != 0 &&
		a.Compare(other) == -other.Compare(a),
		"%+v, %+v, %+v", a, same, other)
	// A separator cannot be forged.
	assert.Check(t, NewAttributes([]Attribute{{"a", "b"}}) != NewAttributes([]Attribute{{"ab", ""}}), "the same")
	assert.Check(t, ElasticContext.String() == "elastic" && OTelContext.String() == "opentelemetry",
		"%v, %v", ElasticContext, OTelContext)
}

// Too long keys and values are cut, and keys that become the same are one.
func TestLongAttributes(t *testing.T) {
	long := strings.Repeat("x", maxAttributeBytes)
	a := NewAttributes([]Attribute{{long + "a", "1"}, {long + "b", long + "2"}})
	if got := maps.Collect(a.All()); len(got) != 1 || got[long] != long || a.Bytes() != 4+2*maxAttributeBytes {
		t.Errorf("%d attributes, %d bytes", len(got), a.Bytes())
	}
}

// What attributes are made of comes back, and decides whether they are the same.
func FuzzAttributes(f *testing.F) {
	f.Add("a", "1", "b", "2", "a", "3")
	f.Add("", "", "\xff", "\x00", "", "x")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, key3, value3 string) {
		list := []Attribute{{key1, value1}, {key2, value2}, {key3, value3}}
		want := make(map[string]string)
		for _, a := range list {
			if len(a.Key) > maxAttributeBytes || len(a.Value) > maxAttributeBytes {
				return
			}
			want[a.Key] = a.Value
		}
		a := NewAttributes(list)
		var keys []string
		for key := range a.All() {
			keys = append(keys, key)
		}
		assert.Check(t, maps.Equal(maps.Collect(a.All()), want) && len(keys) == len(want) && slices.IsSorted(keys),
			"%q, want %q", maps.Collect(a.All()), want)
		reversed := []Attribute{{key3, want[key3]}, {key2, want[key2]}, {key1, want[key1]}}
		same := NewAttributes(reversed)
		assert.Check(t, same == a && same.Compare(a) == 0, "%+v and %+v", a, same)
	})
}
