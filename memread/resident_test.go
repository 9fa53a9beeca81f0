package memread

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
)

func TestSlotPagedOut(t *testing.T) {
	child := newPuppet(t)
	base := child.mapPages(2)
	const across = smallestPage - slotValidOff // of a slot whose validity is the first byte of the second page
	process := child.open()
	pagedOut := func(what string, off uint64, want bool) {
		t.Helper()
		got, err := process.SlotPagedOut(base + off)
		assert.Check(t, err == nil && got == want, "%s: %v, %v", what, got, err)
	}
	pagedOut("mapped, never written", 0, true)
	child.write(0, 100, []byte{1})
	pagedOut("written", 0, false)
	pagedOut("across two pages, the first written", across, true)
	pagedOut("just before", across-1, false)
	child.write(0, smallestPage, []byte{1})
	pagedOut("across two pages, both written", across, false)
	child.must("unmap 0 0 %d", smallestPage)
	pagedOut("unmapped", 0, true)
	for _, addr := range []uint64{0, 1 << 47, 1<<63 - 4096, 1<<64 - 1} {
		pagedOut("nowhere", addr-base, true)
	}
	child.must("exec")
	pagedOut("exec", smallestPage, true)
	child.kill()
	_, err := process.SlotPagedOut(base)
	assert.Check(t, errors.Is(err, ErrGone), "of a process that was killed: %v", err)
}
