// Package resident keeps the program of a process that runs for long from being mapped as far as its start has
// used it.
package resident

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"
)

// Trim unmaps the pages of the program's file that are not written: code, constants, and tables of the runtime,
// most of which only the start needs. The kernel maps 16 pages for each that is used, so of 25 MB nearly all are
// after it, and are counted in what the process takes. What is used again is mapped again, from the page cache
// mostly, in some µs. procRoot is a procfs of our own pid namespace.
func Trim(procRoot string) error {
	text, err := os.ReadFile(procRoot + "/self/maps")
	if err != nil {
		return fmt.Errorf("reading our mappings: %w", err)
	}
	var all []mapping
	for line := range strings.Lines(string(text)) {
		var m mapping
		var device, inode, offset string
		_, err := fmt.Sscanf(line, "%x-%x %s %s %s %s", &m.start, &m.end, &m.permissions, &offset, &device, &inode)
		if err != nil {
			return fmt.Errorf("reading our mappings: %w", err)
		}
		if inode != "0" {
			m.file = device + " " + inode
			all = append(all, m)
		}
	}
	for _, m := range unwritten(all, reflect.ValueOf(Trim).Pointer()) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping pages of the program: %w", errno)
		}
	}
	return nil
}

// mapping is one of a file.
type mapping struct {
	start, end        uintptr
	permissions, file string
}

const isExecutable = "r-x"

// unwritten returns the mappings, of the file that has the code at an address, in which nothing was ever written. What
// is read-only may have been relocated when the program was loaded: by a dynamic linker, of which code is mapped, too,
// or by the program itself if it may be loaded anywhere (PIE): it is above 4 GiB then, where the others are not.
func unwritten(all []mapping, code uintptr) (found []mapping) {
	var program string
	for _, m := range all {
		if m.start <= code && code < m.end {
			program = m.file
		}
	}
	relocated := code>>32 > 0
	for _, m := range all {
		relocated = relocated || m.file != program && strings.HasPrefix(m.permissions, isExecutable)
	}
	for _, m := range all {
		isCode := strings.HasPrefix(m.permissions, isExecutable)
		if m.file == program && (isCode || !relocated && !strings.Contains(m.permissions, "w")) {
			found = append(found, m)
		}
	}
	return found
}
