package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"correlator/internal/host/kallsyms"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// Frames of system calls have the names of kernel functions, and those on the way there that of the
// vDSO.
func TestRecordKernelStacks(t *testing.T) {
	t.Parallel()
	needSampler(t)
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		testenv.Missing(t, "needs /proc/kallsyms")
	}
	defer file.Close()
	if _, _, err := kallsyms.Text(file); err != nil {
		testenv.Missing(t, "needs to be shown kernel addresses")
	}
	p := demo.Start(t, demo.Options{Busy: 1, Gap: -1, Service: "system-calls"})
	p.Borrow("libc.so.6", "clock") // of CPU time, which the vDSO leaves to the kernel
	path := filepath.Join(t.TempDir(), "out.pb.gz")
	recordUntil(t, nil, func(string, string) bool {
		in := make(map[string]bool)
		for _, sample := range readProfile(t, path).Sample {
			for _, l := range sample.Location {
				if len(l.Line) > 0 && strings.Contains(l.Line[0].Function.Name, "clock_gettime") {
					in[l.Mapping.File] = true
				}
			}
		}
		return in["[kernel.kallsyms]"] && in["[vdso]"]
	}, "--service", "system-calls", "--kernel-stacks", "--rate", "997", "--unwinder", "frame-pointers", "-o", path)
}
