package unwind

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// ownFile is the executable of the worker, which is the agent's.
type ownFile struct {
	path string
	root uint64 // address of what all goroutines return to, 0 if it is not known
}

func newOwnFile(procRoot string) ownFile {
	path, _ := os.Readlink(filepath.Join(procRoot, "self/exe"))
	root := make(chan uint64)
	go func() { root <- rootOfGoroutine() }()
	return ownFile{path, <-root}
}

// rootOfGoroutine returns the address of the function that the calling goroutine's stack ends in, 0 if the stack is
// too deep.
func rootOfGoroutine() uint64 {
	counters := make([]uintptr, 16)
	n := runtime.Callers(0, counters)
	if f := runtime.FuncForPC(counters[n-1]); f != nil && f.Name() == "runtime.goexit" {
		return uint64(f.Entry())
	}
	return 0
}

// intervals returns how to unwind the code of the executable, nil for other files, and where its addresses in memory
// are others: by frame pointers, up to the root of a goroutine. That is sufficient for a stack of Go functions that
// call each other. What its tables say would take a tenth of the CPU time that loading the engine takes.
func (o *ownFile) intervals(ref *pfelf.Reference) *stackdeltatypes.IntervalData {
	if ref.FileName() != o.path || o.root == 0 {
		return nil
	}
	file, err := ref.GetELF()
	if err != nil {
		return nil
	}
	for i := range file.Progs {
		p := &file.Progs[i]
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || o.root < p.Vaddr || o.root >= p.Vaddr+p.Memsz {
			continue
		}
		block := stackdeltatypes.BasicBlock{Start: p.Vaddr, End: p.Vaddr + p.Memsz}
		block.Deltas.Add(0, stackdeltatypes.UnwindInfoFramePointer)
		block.Deltas.Add(uint32(o.root-p.Vaddr), stackdeltatypes.UnwindInfoStop)
		block.Deltas.Add(uint32(o.root-p.Vaddr)+rootBytes, stackdeltatypes.UnwindInfoFramePointer)
		data := new(stackdeltatypes.IntervalData)
		data.Add(block)
		return data
	}
	return nil
}

// segmentsOf returns what stands for our own executable: a file with its segments that are loaded, and nothing else.
// The engine does not look in it then for what it needs to go from one stack of a thread to another, which takes half
// the CPU time of the test with our own process.
func segmentsOf(file io.ReaderAt) (*bytes.Reader, error) {
	whole, err := elf.NewFile(file)
	if err != nil {
		return nil, err
	}
	var segments []elf.Prog64
	for _, p := range whole.Progs {
		if p.Type == elf.PT_LOAD {
			segments = append(segments, elf.Prog64{
				Type: uint32(p.Type), Flags: uint32(p.Flags), Off: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr,
				Filesz: p.Filesz, Memsz: p.Memsz, Align: p.Align,
			})
		}
	}
	return fileOf(whole.Type, segments...), nil
}

// rootBytes: goroutines return to the second instruction of the root, of which instructions of arm64 have 4.
const rootBytes = 8
