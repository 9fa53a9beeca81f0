package unwind

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"go.opentelemetry.io/ebpf-profiler/pacmask"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"

	"correlator/bpf"
	"correlator/internal/host/priority"
)

// Programs of the chain. Its last one is not the module's: see chain.setLast.
const (
	entryProgram   = "native_tracer_entry"
	nativeProgram  = "perf_unwind_native"
	hotspotProgram = "perf_unwind_hotspot"

	recordsMap  = "per_cpu_records"
	programsMap = "perf_progs"
	pidPageMap  = "pid_page_to_mapping_info"
	hotspotMap  = "hotspot_procs"
	goMap       = "go_procs"
	offsetsMap  = "interpreter_offsets"
	infosMap    = "unwind_info_array"
	pagesMap    = "stack_delta_page_to_info"
	filesMap    = "exe_id_to_8_stack_deltas"
	filesPrefix = "exe_id_to_"
	filesFormat = filesPrefix + "%d_stack_deltas"
)

// hotspotFrames is how many frames of a JVM the program that walks them goes through before it calls
// itself again, which it may do 29 times: 348 in all, more than a last program keeps. In the module it
// is 4, for kernels whose verifier accepts no more than 4096 instructions; with 12 it takes 30 ms more.
const hotspotFrames = 12

// maxJVMs is how many JVMs can be unwound at a time, half of them of one user; the module has room
// for 256.
const maxJVMs = 2048

// maxGoPrograms is how many Go programs can be unwound at a time, half of them of one user. Their table is there
// without one, too: it takes 0.1 MB.
const maxGoPrograms = 1024

// mapEntries are the sizes of tables that differ from the module's, which are for all processes of a
// machine: together they take 6 MB there, and more than 60 as the module's own loader sizes them.
// What is preallocated is small; the table of mappings is a trie, allocated as it grows. A JVM takes
// some 300 entries of it, libjvm 250 of stack_delta_page_to_info.
var mapEntries = map[string]uint32{
	pidPageMap:      1 << 18,
	pagesMap:        1 << 14,
	hotspotMap:      maxJVMs,
	"reported_pids": 1024,
	"pid_events":    1024,
	goMap:           maxGoPrograms,
	offsetsMap:      1 << 9, // of files with a runtime
	filesMap:        maxFiles,
	"apm_int_procs": 1, // it is not used
}

// maxFiles is how many files there may be with a table of their own, in filesMap, half of them of one user.
// Each takes 80 bytes there. In the module there are 16 tables of tables, for tables of as many sizes: then the
// verifier looks at all that programs do with a table 16 times, which made it take ten times as long.
const maxFiles = 8192

// writtenMaps are those that the worker fills, without those of runtimes.
var writtenMaps = []string{
	offsetsMap, hotspotMap, "apm_int_procs", goMap, pagesMap,
	pidPageMap, infosMap, "reported_pids", filesMap,
}

// recordLayout is where the chain's record of a stack has what a last program needs, in bytes.
type recordLayout struct {
	words        uint32 // the u64 words: kernel addresses, then those of frames
	wordCount    uint32 // u16
	kernelFrames uint32 // u16: how many of the words are kernel addresses
	failure      uint32 // u32: why the stack ends, 0 when it is whole
	size         uint32 // of the record
}

// chain is the module's programs and tables, loaded.
type chain struct {
	programs map[string]*ebpf.Program
	maps     map[string]*ebpf.Map
	inner    *ebpf.MapSpec // of the tables in tables, without their size
	layout   recordLayout
	kernel   kernelLayout

	findsAreas bool
	frames     int64                          // see loadWith
	refused    string                         // why the program for JVMs is as the module has it; "": it is not
	runtimes   map[*runtimeKind]loadedRuntime // those that are switched on, by the request that is served

	waits   *waitChain // nil: the stacks of waits are walked by frame pointers (yet)
	noWaits error      // why, if that is for ever
}

// loadUntil loads programs and tables until the context ends. What the kernel is verifying then is
// not waited for.
func loadUntil(ctx context.Context, types *KernelTypes) (*chain, error) {
	type result struct {
		chain *chain
		err   error
	}
	loaded := make(chan result, 1)
	go func() {
		priority.Raise()
		var r result
		r.err = bpf.Permitted(func() (err error) {
			r.chain, err = loadChain(types)
			return err
		})
		loaded <- r
	}()
	select {
	case r := <-loaded:
		return r.chain, r.err
	case <-ctx.Done():
	}
	go func() {
		if r := <-loaded; r.chain != nil {
			r.chain.close()
		}
	}()
	return nil, ctx.Err()
}

// loadChain loads programs and tables. It raises no resource limits.
func loadChain(types *KernelTypes) (*chain, error) {
	// The programs read user memory whatever was interrupted.
	if err := bpf.ReadsInKernel(); err != nil {
		return nil, err
	}
	if err := checkDescriptors(); err != nil {
		return nil, err
	}
	kernel, err := readKernelLayout(types)
	if err != nil {
		return nil, err
	}
	full, err := support.LoadCollectionSpec()
	if err != nil {
		return nil, fmt.Errorf("reading the unwinding programs: %w", err)
	}
	return load(full, kernel, findsAreas())
}

// findsAreas reports whether programs may look for the memory area of an address: since Linux 5.17.
func findsAreas() bool {
	for _, helper := range []asm.BuiltinFunc{asm.FnGetCurrentTaskBtf, asm.FnFindVma} {
		if features.HaveProgramHelper(ebpf.PerfEvent, helper) != nil {
			return false
		}
	}
	return true
}

// load loads the programs with that for JVMs changed, or as the module has it where that fails: see
// Status.JavaRefused.
func load(full *ebpf.CollectionSpec, kernel kernelLayout, findsAreas bool) (*chain, error) {
	c, refused := loadWith(full, kernel, findsAreas, hotspotFrames)
	if refused == nil {
		return c, nil
	}
	c, err := loadWith(full, kernel, findsAreas, 0)
	if err == nil {
		c.refused = failureText(refused)
	}
	return c, err
}

// loadWith loads the programs with a number of frames for hotspotProgram, 0: that of the module.
func loadWith(full *ebpf.CollectionSpec, kernel kernelLayout, findsAreas bool, frames int64) (*chain, error) {
	layout, err := readRecordLayout(full)
	if err != nil {
		return nil, err
	}
	spec, err := selectPrograms(full, findsAreas, frames)
	if err != nil {
		return nil, err
	}
	if err := setVariables(spec, kernel, findsAreas); err != nil {
		return nil, err
	}
	collection, err := bpf.NewCollection(spec, nil)
	if rejected := (*ebpf.VerifierError)(nil); errors.As(err, &rejected) && !errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("this kernel's verifier, or its lockdown, refuses the unwinding programs: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the unwinding programs: %w", err)
	}
	c := &chain{
		programs: collection.Programs, maps: collection.Maps,
		inner: spec.Maps[filesMap].InnerMap, layout: layout, kernel: kernel,
		findsAreas: findsAreas, frames: frames, runtimes: make(map[*runtimeKind]loadedRuntime),
	}
	if size := c.maps[recordsMap].ValueSize(); size < layout.size {
		c.close()
		return nil, fmt.Errorf("the unwinding programs have records of %d bytes, not %d", size, layout.size)
	}
	for index, name := range map[uint32]string{
		support.ProgUnwindNative: nativeProgram, support.ProgUnwindHotspot: hotspotProgram,
	} {
		if err := c.maps[programsMap].Put(index, c.programs[name]); err != nil {
			c.close()
			return nil, fmt.Errorf("chaining the unwinding programs: %w", err)
		}
	}
	return c, nil
}

func (c *chain) close() {
	for _, p := range c.programs {
		p.Close()
	}
	for _, m := range c.maps {
		m.Close()
	}
	for _, r := range c.runtimes {
		r.close()
	}
	c.waits.close()
}

// setLast has the chain end in a program, or end silently with nil.
func (c *chain) setLast(program *ebpf.Program) error {
	return setLast(c.maps[programsMap], program)
}

// selectPrograms returns what is to be loaded of the module, without runtimes. frames is as for loadWith.
func selectPrograms(full *ebpf.CollectionSpec, findsAreas bool, frames int64) (*ebpf.CollectionSpec, error) {
	programs := []string{entryProgram, nativeProgram, hotspotProgram}
	return selectFrom(full, programs, slices.Clone(writtenMaps), findsAreas, frames)
}

// selectFrom returns programs of the module, with the tables that they use, and those that are needed besides.
func selectFrom(full *ebpf.CollectionSpec, programs, need []string, findsAreas bool,
	frames int64) (*ebpf.CollectionSpec, error) {
	spec := &ebpf.CollectionSpec{
		Maps: make(map[string]*ebpf.MapSpec), Programs: make(map[string]*ebpf.ProgramSpec),
		Variables: make(map[string]*ebpf.VariableSpec), Types: full.Types, ByteOrder: full.ByteOrder,
	}
	for _, name := range programs {
		p := full.Programs[name]
		if p == nil {
			return nil, fmt.Errorf("the unwinding programs have no %s", name)
		}
		p = p.Copy()
		if name == hotspotProgram && frames > 0 {
			if err := setLoopEnd(p.Instructions, "HOTSPOT_FRAMES_PER_PROGRAM", frames); err != nil {
				return nil, err
			}
			add := addReturnAddresses
			if runtime.GOARCH == "arm64" {
				add = addLinkRegister
			}
			changed, err := add(p.Instructions, full.Types)
			if err != nil {
				return nil, err
			}
			p.Instructions = changed
		}
		if name == v8Program {
			changed, err := addProgramCounters(p.Instructions, full.Types)
			if err == nil && runtime.GOARCH == "amd64" {
				changed, err = addFunctions(changed, full.Types)
			}
			if err != nil {
				return nil, err
			}
			p.Instructions = changed
		}
		if name == phpProgram {
			changed, err := addFunctionChecks(p.Instructions, full.Types)
			if err != nil {
				return nil, err
			}
			p.Instructions = changed
		}
		if !findsAreas {
			p.Instructions = withoutAreas(p.Instructions)
		}
		spec.Programs[name] = p
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			if ins.IsLoadFromMap() && strings.HasPrefix(ins.Reference(), filesPrefix) {
				*ins = ins.WithReference(filesMap)
			}
			if ins.IsLoadFromMap() {
				need = append(need, ins.Reference())
			}
		}
	}
	for _, name := range need {
		m := full.Maps[name]
		if m == nil {
			return nil, fmt.Errorf("the unwinding programs have no table %s", name)
		}
		m = copyMap(m)
		if entries := mapEntries[name]; entries > 0 {
			m.MaxEntries = entries
		} else if runtimeBy(func(k *runtimeKind) bool { return k.table == name }) != nil {
			m.MaxEntries = maxRuntimes
		}
		if name == filesMap {
			m.InnerMap.Flags |= unix.BPF_F_INNER_MAP | unix.BPF_F_MMAPABLE // of any size
		}
		spec.Maps[name] = m
	}
	for name, v := range full.Variables {
		if spec.Maps[v.SectionName] != nil {
			spec.Variables[name] = v
		}
	}
	return spec, nil
}

// copyMap returns a copy of what is known of a table, with the same types, which nobody changes: copying these takes
// longer than making the table.
func copyMap(m *ebpf.MapSpec) *ebpf.MapSpec {
	c := *m
	if m.InnerMap != nil {
		c.InnerMap = copyMap(m.InnerMap)
	}
	return &c
}

// setLoopEnd changes the constant that a loop counts to. The comparison is found by its line of the
// source, which is in the debug information.
func setLoopEnd(instructions asm.Instructions, constant string, end int64) error {
	var compare []*asm.Instruction
	for i := range instructions {
		ins := &instructions[i]
		source := ins.Source()
		if source != nil && ins.OpCode.JumpOp() == asm.JEq && ins.OpCode.Source() == asm.ImmSource &&
			strings.Contains(source.String(), "< "+constant) {
			compare = append(compare, ins)
		}
	}
	if len(compare) != 1 {
		return fmt.Errorf("the unwinding programs compare with %s %d times", constant, len(compare))
	}
	compare[0].Constant = end
	return nil
}

// withoutAreas removes calls of bpf_find_vma, which Linux has since 5.17. They refine an error that
// nothing here depends on; the verifier refuses unknown calls even in dead code.
func withoutAreas(instructions asm.Instructions) asm.Instructions {
	const callback = "find_vma_callback"
	var kept asm.Instructions
	inCallback := false
	for _, ins := range instructions {
		if name := ins.Symbol(); name != "" {
			inCallback = strings.HasPrefix(name, callback)
		}
		if inCallback {
			continue
		}
		symbol, reference := ins.Symbol(), ins.Reference()
		switch {
		case ins.IsLoadOfFunctionPointer() && strings.HasPrefix(reference, callback):
			ins, reference = asm.LoadImm(ins.Dst, 0, asm.DWord), ""
		case ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetCurrentTaskBtf:
			ins = asm.Mov.Imm(asm.R0, 0)
		case ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnFindVma:
			ins = asm.Mov.Imm(asm.R0, -int32(unix.ENOTSUP))
		}
		// Debug information of functions and lines would refer to what was removed.
		ins.Metadata = asm.Metadata{}
		if symbol != "" {
			ins = ins.WithSymbol(symbol)
		}
		if reference != "" {
			ins = ins.WithReference(reference)
		}
		kept = append(kept, ins)
	}
	return kept
}

// setVariables sets what the programs have to know of this machine.
func setVariables(spec *ebpf.CollectionSpec, kernel kernelLayout, findsAreas bool) error {
	return bpf.SetVariables(spec, map[string]any{
		"origin_id_sampling":  uint16(1), // 0 is none: the programs do nothing
		"filter_idle_frames":  true,
		"inverse_pac_mask":    ^pacmask.GetPACMask(),
		"task_stack_offset":   kernel.taskStack,
		"stack_ptregs_offset": kernel.stackPtRegs,
		"tpbase_offset":       kernel.threadBase,
		"vma_lookup_enabled":  findsAreas,
		"vma_vm_file_offset":  kernel.vmFile,
		"vma_vm_flags_offset": kernel.vmFlags,
	})
}

// readRecordLayout reads the layout of the chain's record from the programs' own BTF.
func readRecordLayout(spec *ebpf.CollectionSpec) (l recordLayout, err error) {
	var record *btf.Struct
	if err := spec.Types.TypeByName("PerCPURecord", &record); err != nil {
		return l, fmt.Errorf("reading the unwinding programs' BTF: %w", err)
	}
	for path, offset := range map[string]*uint32{
		"trace.frame_data":        &l.words,
		"trace.frame_data_len":    &l.wordCount,
		"trace.num_kernel_frames": &l.kernelFrames,
		"state.unwind_error":      &l.failure,
	} {
		var ok bool
		if *offset, ok = bpf.OffsetOf(record, path); !ok {
			return l, fmt.Errorf("the unwinding programs' record has no %s", path)
		}
	}
	l.size = record.Size
	return l, nil
}
