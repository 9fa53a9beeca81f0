//go:build guest

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/attach/process"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
	"correlator/internal/out/agent"
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

	// check has nothing to say of it, and run samples what the process works on.
	results, works := checked(t, installed(t), nil, exporting())
	assert.Check(t, works, "check: %+v", results)
	admin := filepath.Join(t.TempDir(), "admin")
	startAgent(t, nil, exporting("--admin-socket", admin)...)
	working := w.StartThreads(1)[1].Index
	w.Begin(working, demo.OTelRecord{TraceID: demo.TraceID{1}, SpanID: demo.SpanID{2}, Flags: 1})
	w.Busy(working, true)
	testenv.Poll(t, deadline, "samples", func() bool {
		_, err := os.Lstat(admin)
		if err != nil {
			return false
		}
		var status agent.Status
		assert.NilError(t, json.Unmarshal(command(t, "", "status", "-o", "json", "--admin-socket", admin), &status))
		return slices.ContainsFunc(status.Processes, func(p agent.ProcessStatus) bool {
			return p.PID == w.PID && p.State == process.StateAttached && p.Exported > 0
		})
	})
}

func canName(t *testing.T) bool {
	t.Helper()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	assert.NilError(t, err)
	defer unix.Munmap(page)
	name := []byte("a name\x00")
	err = unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)),
		uintptr(unsafe.Pointer(&name[0])))
	assert.Assert(t, err == nil || errors.Is(err, unix.EINVAL), err)
	return err == nil
}
