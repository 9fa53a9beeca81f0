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
	var program string
	var kept []mapping
	pc := reflect.ValueOf(Trim).Pointer()
	for line := range strings.Lines(string(text)) {
		var m mapping
		var device, inode, offset string
		_, err := fmt.Sscanf(line, "%x-%x %s %s %s %s", &m.start, &m.end, &m.permissions, &offset, &device, &inode)
		if err != nil {
			return fmt.Errorf("reading our mappings: %w", err)
		}
		m.file = device + " " + inode
		if m.start <= pc && pc < m.end {
			program = m.file
		}
		if isFromFile(m.permissions, pc) {
			kept = append(kept, m)
		}
	}
	for _, m := range kept {
		if m.file != program {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("unmapping pages of the program: %w", errno)
		}
	}
	return nil
}

// isFromFile reports whether what is mapped with such permissions is what the file has, by where the program has code.
// One that may be loaded anywhere (PIE) is loaded above 4 GiB, the others are below; its constants, which are read-only
// by now, have addresses that were written when it was loaded.
func isFromFile(permissions string, code uintptr) bool {
	if code>>32 > 0 {
		return strings.HasPrefix(permissions, "r-x")
	}
	return !strings.Contains(permissions, "w")
}

type mapping struct {
	start, end        uintptr
	permissions, file string
}
