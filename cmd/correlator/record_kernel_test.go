package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

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
	output, err := exec.Command(installed(t), "record", "-d", "1s", "--service", "system-calls", "--kernel-stacks",
		"--rate", "997", "--unwinder", "frame-pointers", "-o", path).CombinedOutput()
	assert.NilError(t, err, "\n%s", output)
	const function = "clock_gettime"
	inKernel, inVDSO := 0, 0
	for _, sample := range readProfile(t, path).Sample {
		for _, l := range sample.Location {
			if len(l.Line) == 0 || !strings.Contains(l.Line[0].Function.Name, function) {
				continue
			}
			switch l.Mapping.File {
			case "[kernel.kallsyms]":
				inKernel++
			case "[vdso]":
				inVDSO++
			}
		}
	}
	assert.Check(t, inKernel != 0 && inVDSO != 0,
		"%s is in %d kernel stacks, and in the vDSO in %d\n%s", function, inKernel, inVDSO, output)
}
