package memread

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Layout of /proc/PID/pagemap: a word for each page of the address space, in its order, 0 where
// nothing is mapped (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagemapWordBytes  = 8
	pagemapPresentBit = 1 << 63
)

// SlotPagedOut reports whether the process has not got the memory at hand in which it says that a
// slot is valid. An update of the slot begins and ends with writing there, so as long as this stays
// so there was none. Memory that is not mapped is no more at hand than what was paged out.
func (p *Process) SlotPagedOut(addr uint64) (bool, error) {
	present, err := p.present(addr + slotValidOff)
	if err != nil {
		return false, fmt.Errorf("looking for the page at %#x: %w", addr, err)
	}
	return !present, nil
}

// present reports whether a page is in the page table of the process. The file is opened each time:
// it is of the memory that the process had then, and an exec gives it another.
func (p *Process) present(addr uint64) (bool, error) {
	pagemap, err := p.openFile("pagemap")
	if err != nil {
		return false, err
	}
	defer pagemap.Close()
	page := addr / uint64(os.Getpagesize())
	var word [pagemapWordBytes]byte
	_, err = pagemap.ReadAt(word[:], int64(page*pagemapWordBytes))
	if errors.Is(err, io.EOF) { // behind all that a process can map
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return binary.NativeEndian.Uint64(word[:])&pagemapPresentBit != 0, nil
}
