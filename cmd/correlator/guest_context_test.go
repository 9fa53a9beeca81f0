//go:build guest

package main

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"correlator/internal/demo"
	"correlator/internal/testenv"
)

// Where mappings cannot be named (before Linux 5.17, or without CONFIG_ANON_VMA_NAME), a process
// context is found by its memfd.
func TestContextWithoutNames(t *testing.T) {
	w := demo.StartOTel(t, demo.OTelOptions{})
	maps := string(testenv.ReadFile(t, "/proc/"+strconv.Itoa(w.PID)+"/maps"))
	named := canName(t)
	t.Logf("mappings can be named: %v", named)
	if file := strings.Contains(maps, " /memfd:OTEL_CTX"); file == named {
		t.Errorf("mappings can be named: %v; that of the context is known by its memfd: %v\n%s", named, file, maps)
	}
	TestScanOTel(t)
}

// canName reports whether the kernel has PR_SET_VMA_ANON_NAME.
func canName(t *testing.T) bool {
	t.Helper()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	name := []byte("a name\x00")
	err = unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)),
		uintptr(unsafe.Pointer(&name[0])))
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	return err == nil
}
