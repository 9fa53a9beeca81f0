package unwind

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"correlator/bpf"
)

// KernelTypes are offsets of fields in types of the kernel.
type KernelTypes struct {
	taskStack  uint32 // of task_struct.stack
	threadBase uint64 // of the thread pointer in task_struct
	vmFile     uint32 // of vm_area_struct.vm_file
	vmFlags    uint32 // of vm_area_struct.vm_flags
}

// kernelLayout is what the programs have to know of the running kernel.
type kernelLayout struct {
	KernelTypes
	stackPtRegs  uint32 // offset of the registers of user mode from the base of a kernel stack
	ownKernelPID uint32 // of this process, in the initial pid namespace
}

// readKernelLayout runs a program once for what BTF does not have. Without types, it reads them.
func readKernelLayout(types *KernelTypes) (l kernelLayout, err error) {
	if types == nil {
		if types, err = ReadKernelTypes(); err != nil {
			return l, err
		}
	}
	l.KernelTypes = *types
	return l, l.run()
}

// ReadKernelTypes reads the kernel's BTF. That takes 30 ms of CPU time, unless a sampler has just been opened, which
// needs it, too.
func ReadKernelTypes() (*KernelTypes, error) {
	kernel, err := bpf.KernelTypes()
	if err != nil {
		return nil, err
	}
	var task, area *btf.Struct
	err = errors.Join(kernel.TypeByName("task_struct", &task), kernel.TypeByName("vm_area_struct", &area))
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's BTF: %w", err)
	}
	threadBase := "thread.fsbase"
	if runtime.GOARCH == "arm64" {
		threadBase = "thread.uw.tp_value"
	}
	l := new(KernelTypes)
	var base uint32
	for _, want := range []struct {
		of     btf.Type
		paths  []string // the first that exists
		offset *uint32
	}{
		{task, []string{"stack"}, &l.taskStack},
		{task, []string{threadBase}, &base},
		{area, []string{"vm_file"}, &l.vmFile},
		{area, []string{"vm_flags", "__vm_flags"}, &l.vmFlags},
	} {
		found := false
		for _, path := range want.paths {
			if offset, ok := bpf.OffsetOf(want.of, path); ok {
				*want.offset, found = offset, true
				break
			}
		}
		if !found {
			return nil, fmt.Errorf("the kernel's BTF has no %s.%s", want.of.TypeName(), want.paths[0])
		}
	}
	l.threadBase = uint64(base)
	return l, nil
}

// facts is what the program finds, of the thread that runs it.
type facts struct {
	PtRegs, Stack uint64
	PIDTGID       uint64
}

// maxStackBytes is more than a kernel stack has on any architecture.
const maxStackBytes = 256 << 10

// run finds stackPtRegs and ownKernelPID by a program that is run once, here.
func (l *kernelLayout) run() error {
	result, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("creating a table for the layout of kernel stacks: %w", err)
	}
	defer result.Close()
	var program *ebpf.Program
	err = bpf.Permitted(func() (err error) {
		program, err = ebpf.NewProgram(l.program(result))
		return err
	})
	if err != nil && errors.Is(features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnTaskPtRegs), ebpf.ErrNotSupported) {
		return &bpf.MissingError{
			Feature: "the eBPF helper bpf_task_pt_regs", Remedy: "boot Linux 5.15 or later", Err: err,
		}
	}
	if err != nil {
		return fmt.Errorf("loading the program that finds the layout of kernel stacks: %w", err)
	}
	defer program.Close()
	if _, err := program.Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("running the program that finds the layout of kernel stacks: %w", err)
	}
	var f facts
	if err := result.Lookup(uint32(0), &f); err != nil {
		return fmt.Errorf("reading the layout of kernel stacks: %w", err)
	}
	if f.PtRegs <= f.Stack || f.PtRegs-f.Stack >= maxStackBytes {
		return fmt.Errorf("the registers at %#x are not on the kernel stack at %#x", f.PtRegs, f.Stack)
	}
	l.stackPtRegs, l.ownKernelPID = uint32(f.PtRegs-f.Stack), uint32(f.PIDTGID>>32)
	return nil
}

// program stores facts in the entry of a table.
func (l *kernelLayout) program(result *ebpf.Map) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: "unwind_layout", Type: ebpf.RawTracepoint, License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentTaskBtf.Call(),
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.FnTaskPtRegs.Call(),
			asm.Mov.Reg(asm.R7, asm.R0),
			asm.FnGetCurrentPidTgid.Call(),
			asm.Mov.Reg(asm.R8, asm.R0),
			// *(u64 *)(fp - 8) = task->stack
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R1, asm.RFP),
			asm.Add.Imm(asm.R1, -8),
			asm.Mov.Imm(asm.R2, 8),
			asm.Mov.Reg(asm.R3, asm.R6),
			asm.Add.Imm(asm.R3, int32(l.taskStack)),
			asm.FnProbeReadKernel.Call(),
			// result[0]
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -16),
			asm.LoadMapPtr(asm.R1, result.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.StoreMem(asm.R0, 0, asm.R7, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, -8, asm.DWord),
			asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
			asm.StoreMem(asm.R0, 16, asm.R8, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	}
}
