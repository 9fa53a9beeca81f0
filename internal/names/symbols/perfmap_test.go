package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/elfsym"
)

func perfMapNames(t *testing.T, text string, addrs ...uint64) (names []string) {
	t.Helper()
	q := NewQuery(append([]uint64(nil), addrs...))
	assert.NilError(t, q.ReadPerfMap(strings.NewReader(text), int64(len(text))))
	for _, addr := range addrs {
		names = append(names, q.Name(addr))
	}
	return names
}

func TestReadPerfMap(t *testing.T) {
	long := strings.Repeat("n", 3*bufferBytes)
	for _, test := range []struct {
		what, text string
		addr       uint64
		want       string
	}{
		{"the first byte", "1000 20 Demo.run()\n", 0x1000, "Demo.run()"},
		{"the last byte", "1000 20 Demo.run()\n", 0x101f, "Demo.run()"},
		{"behind it", "1000 20 Demo.run()\n", 0x1020, ""},
		{"before it", "1000 20 Demo.run()\n", 0xfff, ""},
		{"a name with spaces", "1000 20 void Demo$Worker.burn(int, long)\n", 0x1000,
			"void Demo$Worker.burn(int, long)"},
		{"prefixes and capitals", "0x00007F00 0xA0 LazyCompile:~f /srv/a.js:1\n", 0x7f10, "LazyCompile:~f /srv/a.js:1"},
		{"code that moved", "1000 20 old\n1010 8 new\n", 0x1017, "new"},
		{"what was not overwritten", "1000 20 old\n1010 8 new\n", 0x1018, "old"},
		{"the same place again", "1000 20 old\n1000 20 new\n", 0x1000, "new"},
		{"a line without an end", "1000 20 old\n1000 20 ne", 0x1000, "old"},
		{"tabs, and more spaces", "1000\t20\tname of it\n", 0x1000, "name of it"},
		{"more spaces", "\n 1000  20  name\n", 0x1000, "name"},
		{"windows", "1000 20 name\r\n", 0x1000, "name"},
		{"a line longer than the buffer", "1000 20 " + long + "\n2000 20 next\n", 0x2000, "next"},
		{"its name is cut off", "1000 20 " + long + "\n", 0x1000,
			long[:maxNameBytes-len("…")] + "…"},
	} {
		got := perfMapNames(t, test.text, 0x1, test.addr, 0x5000)
		assert.Check(t, got[1] == test.want && got[0]+got[2] == "", "%s: %.40q, want %.40q", test.what, got, test.want)
	}
}

// Lines of another form are counted, where an address is in no other.
func TestReadPerfMapOther(t *testing.T) {
	for text, other := range map[string]int{
		"1000 0 name\n": 0, "1000 20 \n": 1, "1000 20\n": 1, "1000 ffffffffffffffff name\n": 1,
		"x y z\n1000 g name\n\n12345678901234567 20 name\n1000;20;name\n": 4, "\n\n1000 20 na": 0,
	} {
		for _, more := range []string{"", "2000 10 other\n", "1000 10 name\n"} {
			q := NewQuery([]uint64{0x1000})
			err := q.ReadPerfMap(strings.NewReader(more+text), int64(len(more+text)))
			if other == 0 || strings.HasPrefix(more, "1000") {
				assert.NilError(t, err)
			} else {
				said := fmt.Sprintf(" in %d of its lines", other)
				assert.Check(t, errors.Is(err, ErrLines) && strings.HasSuffix(err.Error(), said), "%q: %v", text, err)
			}
		}
	}
}

// What a later map does not hold keeps its name.
func TestReadPerfMapAgain(t *testing.T) {
	q := NewQuery([]uint64{0x1000, 0x2000})
	for _, text := range []string{"1000 10 a\n2000 10 b\n", "2000 10 c\n", ""} {
		assert.NilError(t, q.ReadPerfMap(strings.NewReader(text), int64(len(text))))
	}
	if q.Name(0x1000) != "a" || q.Name(0x2000) != "c" {
		t.Errorf("%q", q.names)
	}
}

// Of a map beyond the limit the end is read, from the first whole line, which is said where a name was not found.
func TestReadPerfMapEnd(t *testing.T) {
	const tail = "\n1000 10 last\n"
	read := 0
	q := NewQuery([]uint64{0x1000, 0x2000})
	const size = 1 << 40
	err := q.ReadPerfMap(readerAt(func(b []byte, off int64) (int, error) {
		clear(b)
		read += len(b)
		if at := size - int64(len(tail)) - off; at < int64(len(b)) { // the buffer's size divides both limits
			copy(b[at:], tail)
		}
		return len(b), nil
	}), size)
	if !errors.Is(err, elfsym.ErrLimit) || q.Name(0x1000) != "last" || read > maxPerfMapBytes+bufferBytes {
		t.Errorf("%q, %v after %d bytes", q.names, err, read)
	}
}

type readerAt func(b []byte, off int64) (int, error)

func (r readerAt) ReadAt(b []byte, off int64) (int, error) { return r(b, off) }

func TestReadPerfMapIsBounded(t *testing.T) {
	addrs := make([]uint64, 1<<14)
	for i := range addrs {
		addrs[i] = uint64(i + 1)
	}
	text := bytes.Repeat([]byte("1 ffffff f\n"), maxMatches/len(addrs)+1)
	err := NewQuery(addrs).ReadPerfMap(bytes.NewReader(text), int64(len(text)))
	assert.Check(t, errors.Is(err, elfsym.ErrLimit), err)
	errRead := errors.New("no more")
	failing := readerAt(func([]byte, int64) (int, error) { return 0, errRead })
	err = NewQuery(addrs).ReadPerfMap(failing, 10)
	assert.Check(t, errors.Is(err, errRead), err)
}
