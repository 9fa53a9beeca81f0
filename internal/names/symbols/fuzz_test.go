package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"testing"

	"gotest.tools/v3/assert"
)

func checkNames(t *testing.T, q *Query) {
	for _, name := range q.names {
		assert.Assert(t, len(name) <= maxNameBytes && bytes.IndexByte([]byte(name), 0) < 0,
			"name of %d bytes: %.40q", len(name), name)
	}
}

func someAddresses() *Query {
	return NewQuery([]uint64{0, 1, 0x1000, 0x1008, 0x401000, 0x7f0000001000, 1 << 63, ^uint64(0)})
}

func FuzzReadPerfMap(f *testing.F) {
	f.Add([]byte("1000 20 Demo.run()\n1000 20 void Demo$Worker.burn()\n0x401000 0x10 x\n"))
	f.Add([]byte("1000 ffffffffffffffff wraps\n1000 0 empty\n 1000 1 x\n1000 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := someAddresses()
		err := q.ReadPerfMap(bytes.NewReader(b), int64(len(b)))
		assert.Assert(t, err == nil || errors.Is(err, ErrLines), err)
		checkNames(t, q)
	})
}

func FuzzReadKallsyms(f *testing.F) {
	f.Add([]byte(kallsymsText))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := someAddresses()
		err := q.ReadKallsyms(bytes.NewReader(b))
		assert.Assert(t, err == nil || errors.Is(err, bufio.ErrBufferFull), err)
		checkNames(t, q)
	})
}
