package agent

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"correlator/internal/lab/backend"
	"correlator/internal/lab/demo"
	"correlator/internal/lab/testenv"
)

// await waits until a frame in a stack of a process was exported.
func (x *exporting) await(p *demo.Process, what string, is func(backend.Frame) bool) {
	x.t.Helper()
	testenv.Poll(x.t, deadline, what, func() bool {
		exported := x.backend.Profiles()
		for sample := range exported.Samples {
			if sample.PID != fmt.Sprint(p.PID) {
				continue
			}
			for _, frame := range exported.Stacks[sample.Stack] {
				if is(frame) {
					return true
				}
			}
		}
		return false
	})
}

// idsAreSent checks that the ids that a backend computes are those that the process was sent.
func (x *exporting) idsAreSent(exported backend.Profiles, report demo.Report) {
	x.t.Helper()
	stacks := 0
	for _, transaction := range report.Transactions {
		for stack := range transaction.Stacks {
			if stacks++; exported.Stacks[stack] == nil {
				x.t.Errorf("no stack that was exported has the id %s", stack)
			}
		}
	}
	if stacks == 0 {
		x.t.Error("the process was sent no stacks")
	}
}

// Frames of the kernel are exported with names.
func TestExportedKernelNames(t *testing.T) {
	p := demo.Start(t, demo.Options{Busy: 2, Rewrite: demo.RewriteCycle, PageOut: true}) // often in the kernel
	x := runExporting(t, false, func(c *Config) { c.KernelStacks = true })
	x.await(p, "a frame of madvise", func(f backend.Frame) bool {
		return f.Type == "kernel" && f.File == "vmlinux" && strings.Contains(f.Function, "madvise")
	})
	x.await(p, "a frame of the program", func(f backend.Frame) bool { return f.Function == "tracer_rewrite" })
	exported := x.ended()
	x.exportedAdded(exported, 0)
	x.idsAreSent(exported, p.Quit())
}

// The methods of a JVM whose stacks are walked by frame pointers have the names that its perf map has
// for them, also after that has changed. The ids are those without names.
func TestExportedPerfMap(t *testing.T) {
	testenv.NeedTool(t, "jcmd")
	p := demo.StartJVM(t, demo.JVMOptions{FramePointers: true, Busy: true, Threads: 1})
	path := p.HostPath(fmt.Sprintf("/tmp/perf-%d.map", p.PID))
	t.Cleanup(func() { os.Remove(path) })
	p.Begin(1)
	const method = "Demo$Worker.burn"
	testenv.Poll(t, deadline, "the method in the perf map", func() bool { // it is compiled sooner or later
		out, err := exec.Command("jcmd", fmt.Sprint(p.PID), "Compiler.perfmap").CombinedOutput()
		assert.NilError(t, err, "\n%s", out)
		return bytes.Contains(testenv.ReadFile(t, path), []byte(method))
	})
	x := runExporting(t, false)
	isCompiled := func(f backend.Frame, name string) bool {
		return f.Type == "native" && f.FileID == anonymousID && strings.Contains(f.Function, name)
	}
	x.await(p, "the method", func(f backend.Frame) bool { return isCompiled(f, method) })
	x.await(p, "a function of the JVM", func(f backend.Frame) bool {
		return strings.HasSuffix(f.File, "/libjvm.so") && f.Function != ""
	})
	content := testenv.ReadFile(t, path)
	testenv.WriteFile(t, path, bytes.ReplaceAll(content, []byte(method), []byte("Other.method")))
	x.await(p, "its other name", func(f backend.Frame) bool { return isCompiled(f, "Other.method") })
	p.End(1)
	exported := x.ended()
	x.exportedAdded(exported, 0)
	x.idsAreSent(exported, p.Quit())
}

// anonymousID is the file id of frames in no file: xxh64 of no bytes, twice.
const anonymousID = "ef46db3751d8e999ef46db3751d8e999"
