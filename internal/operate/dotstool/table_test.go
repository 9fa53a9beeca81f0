package dotstool

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/dots/client"
	"correlator/dots/dynamic"
	"correlator/dots/schema"
)

// instance encodes an object of JSON.
func instance(t *testing.T, s *schema.Struct, json string) string {
	t.Helper()
	data, _, err := dynamic.ParseJSON(nil, s, []byte(json))
	assert.NilError(t, err)
	return string(data)
}

// The key is the first column; texts of guests do not command the terminal.
func TestTable(t *testing.T) {
	rooms := section{name: "Room", s: room, rows: []row{
		{instance: instance(t, room, `{"id":7,"name":"kitchen","mode":4,"place":{"floor":"g"}}`)},
		{instance: instance(t, room, `{"id":12,"name":"\u001b[2J"}`)},
	}}
	got := lines([]section{rooms, {name: "G\x1b"}}, 0, 0)
	want := []string{
		"Room: 2",
		`id  name     mode     place`,
		` 7  kitchen  heating  {floor:"g"}`,
		`12  \x1b[2J  -        -`,
		"",
		`G\x1b: not known to the broker`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// A narrow terminal leaves columns out, the key last.
	narrow := lines([]section{rooms}, 14, 0)
	assert.Check(t, narrow[1] == "id  name", "%q", narrow)
}

// Types share the rows of a terminal; what one does not need, others have.
func TestShares(t *testing.T) {
	many, few := make([]row, 1000), make([]row, 2)
	for _, test := range []struct {
		sections []section
		rows     int
		want     []int
	}{
		{[]section{{rows: many}}, 24, []int{21}},
		{[]section{{rows: many}, {rows: few}}, 24, []int{15, 2}},
		{[]section{{rows: many}, {rows: many}}, 25, []int{9, 9}},
		{[]section{{rows: many}, {rows: many}}, 1, []int{1, 1}},
		{[]section{{rows: many}, {rows: few}}, 0, []int{1000, 2}},
		{[]section{{rows: make([]row, 2*maxRows)}}, 0, []int{maxRows}},
		{nil, 24, []int{}},
	} {
		got := shares(test.sections, test.rows)
		assert.Check(t, slices.Equal(got, test.want), "%d rows: %v, want %v", test.rows, got, test.want)
	}
	// All of it fits, with what says that there is more.
	a, b := section{name: "A", s: room, rows: many}, section{name: "B", s: room, rows: many}
	for i := range many {
		many[i].instance = instance(t, room, `{"id":`+strconv.Itoa(i)+`}`)
	}
	got := lines([]section{a, b}, 80, 24)
	if len(got) > 24 || got[len(got)-1] != "… 992 more" {
		t.Errorf("%d lines, the last is %q", len(got), got[len(got)-1])
	}
}

// Of a type that is not cached the last transmission of each key is shown, of a bounded number.
func TestLast(t *testing.T) {
	ring := schema.MustStruct("Ring", schema.Flags{},
		schema.Property{Name: "door", Tag: 1, Key: true, Type: schema.Builtin(schema.Uint32)},
		schema.Property{Name: "n", Tag: 2, Type: schema.Builtin(schema.Uint32)})
	r := &rows{s: ring, last: make(map[string]string)}
	for i := range maxLast + 5 {
		r.add(&client.Raw{Type: ring, Instance: []byte(instance(t, ring, `{"door":`+strconv.Itoa(maxLast+5-i)+`}`))})
	}
	r.add(&client.Raw{Type: ring, Instance: []byte(instance(t, ring, `{"door":1005,"n":9}`))})
	got, more, dropped := r.first(maxLast)
	assert.Assert(t, len(got) == maxLast && more == 0 && dropped == 5,
		"%d rows, %d more, %d dropped", len(got), more, dropped)
	some, more, _ := r.first(7)
	assert.Check(t, slices.Equal(some, got[:7]) && more == maxLast-7, "%d rows, %d more", len(some), more)
	if got[0].instance != instance(t, ring, `{"door":6}`) ||
		got[maxLast-1].instance != instance(t, ring, `{"door":1005,"n":9}`) {
		t.Errorf("%x … %x", got[0].instance, got[maxLast-1].instance)
	}
	s := section{name: "Ring", s: ring, rows: got, dropped: dropped}
	title := s.title()
	assert.Check(t, title == "Ring: not cached, the last of each key; 5 of further keys not shown", "%q", title)
}
