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

// SlotPagedOut reports whether the page with the slot's valid byte is not in memory. An update of
// the slot begins and ends with writing that byte, so while the page stays out there was none. A
// page that is not mapped counts as paged out.
func (p *Process) SlotPagedOut(addr uint64) (bool, error) {
	present, err := p.present(addr + slotValidOff)
	if err != nil {
		return false, fmt.Errorf("reading pagemap for %#x: %w", addr, err)
	}
	return !present, nil
}

// present reports whether a page is in the page table of the process. The file is opened each time:
// it refers to the memory that the process had when it was opened, which an exec replaces.
func (p *Process) present(addr uint64) (bool, error) {
	pagemap, err := p.openFile("pagemap")
	if err != nil {
		return false, err
	}
	defer pagemap.Close()
	page := addr / uint64(os.Getpagesize())
	var word [pagemapWordBytes]byte
	_, err = pagemap.ReadAt(word[:], int64(page*pagemapWordBytes))
	if errors.Is(err, io.EOF) { // beyond all that a process can map
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return binary.NativeEndian.Uint64(word[:])&pagemapPresentBit != 0, nil
}
