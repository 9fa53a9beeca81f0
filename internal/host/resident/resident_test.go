package resident

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// written is in a page of the program's file that is written.
var written = []int{1, 2, 3}

// Pages of the program are not mapped any more until they are used, and what it has written stays.
func TestTrim(t *testing.T) {
	written[0] = 4
	start, end := code(t)
	memory, err := os.Open("/proc/self/mem")
	assert.NilError(t, err)
	defer memory.Close()
	contents, again := make([]byte, end-start), make([]byte, end-start)
	_, err = memory.ReadAt(contents, int64(start))
	assert.NilError(t, err)
	before := mapped(t, start)
	assert.NilError(t, Trim("/proc"))
	after := mapped(t, start)
	assert.Check(t, after < before, "%d kB before, %d kB after", before, after)
	assert.Check(t, written[0] == 4)
	_, err = memory.ReadAt(again, int64(start))
	assert.Check(t, err == nil && bytes.Equal(contents, again), "the code is another: %v", err)
	assert.ErrorIs(t, Trim(t.TempDir()), os.ErrNotExist)
}

// What a linker or the program itself may have relocated is not unmapped.
func TestUnwritten(t *testing.T) {
	const code = 0x401000
	program := []mapping{
		{0x400000, 0x500000, "r-xp", "program"}, {0x500000, 0x600000, "r--p", "program"},
		{0x600000, 0x700000, "rw-p", "program"}, {0x700000, 0x800000, "rwxp", "program"},
	}
	data := mapping{0x7f0000000000, 0x7f0000100000, "r--p", "locale"}
	linker := mapping{0x7f0000200000, 0x7f0000300000, "r-xp", "ld.so"}
	var moved []mapping
	for _, m := range program {
		m.start, m.end = m.start+1<<32, m.end+1<<32
		moved = append(moved, m)
	}
	for _, test := range []struct {
		all  []mapping
		code uintptr
		want []mapping
	}{
		{append(slices.Clone(program), data), code, program[:2]},
		{append(slices.Clone(program), linker), code, program[:1]},
		{moved, code + 1<<32, moved[:1]},
	} {
		got := unwritten(test.all, test.code)
		assert.Check(t, slices.Equal(got, test.want), "%+v, not %+v", got, test.want)
	}
}

// code returns where the code of the program is.
func code(t *testing.T) (start, end uintptr) {
	pc := reflect.ValueOf(Trim).Pointer()
	for line := range strings.Lines(read(t, "maps")) {
		_, err := fmt.Sscanf(line, "%x-%x ", &start, &end)
		assert.NilError(t, err)
		if start <= pc && pc < end {
			return start, end
		}
	}
	t.Fatal("the code is nowhere")
	return 0, 0
}

// mapped returns how much of the mapping at an address is mapped.
func mapped(t *testing.T, start uintptr) (kilobytes int) {
	_, mapping, found := strings.Cut(read(t, "smaps"), fmt.Sprintf("%08x-", start))
	assert.Assert(t, found)
	_, rss, found := strings.Cut(mapping, "\nRss:")
	assert.Assert(t, found)
	_, err := fmt.Sscan(rss, &kilobytes)
	assert.NilError(t, err)
	return kilobytes
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile("/proc/self/" + name)
	assert.NilError(t, err)
	return string(text)
}
