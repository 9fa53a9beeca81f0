package resident

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
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

func TestIsFromFile(t *testing.T) {
	const fixed, anywhere = 0x401000, 0x555555555000
	for _, test := range []struct {
		permissions     string
		fixed, anywhere bool
	}{{"r-xp", true, true}, {"r--p", true, false}, {"rw-p", false, false}, {"rwxp", false, false}} {
		assert.Check(t, isFromFile(test.permissions, fixed) == test.fixed, test.permissions)
		assert.Check(t, isFromFile(test.permissions, anywhere) == test.anywhere, test.permissions)
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
