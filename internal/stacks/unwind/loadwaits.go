package unwind

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// waitChain is the chain once more, for programs in tracepoints: of another type, and with a table of its own of what
// they call, which may be of one type only. All other tables are those of the chain, also the records: interrupts are
// off while either walks.
//
// The kernel empties a table of programs when its last descriptor is closed, whoever uses it: programs would end in
// the middle, without a word. So all is kept here until close.
type waitChain struct {
	programs map[string]*ebpf.Program
	next     *ebpf.Map
	runtimes map[*runtimeKind]*ebpf.Program
}

// loadWaits loads the chain for waits, too, unless that was tried.
func (c *chain) loadWaits() {
	if c.waits != nil || c.noWaits != nil {
		return
	}
	c.noWaits = c.openWaits()
	for kind := range c.runtimes {
		if c.noWaits == nil {
			c.noWaits = c.waits.loadRuntime(c, kind)
		}
	}
}

// openWaits loads the chain for waits without runtimes. The error says why their stacks are walked by frame pointers.
func (c *chain) openWaits() error {
	collection, err := c.loadMore(c.changeForWaits, entryProgram, nativeProgram, hotspotProgram)
	if err != nil {
		return fmt.Errorf("loading the unwinding programs for waits: %w", err)
	}
	w := &waitChain{
		programs: make(map[string]*ebpf.Program), next: collection.DetachMap(programsMap),
		runtimes: make(map[*runtimeKind]*ebpf.Program),
	}
	for name := range collection.Programs {
		w.programs[name] = collection.DetachProgram(name)
	}
	collection.Close() // its tables are those of the chain
	for index, name := range map[uint32]string{
		support.ProgUnwindNative: nativeProgram, support.ProgUnwindHotspot: hotspotProgram,
	} {
		if err := w.next.Put(index, w.programs[name]); err != nil {
			w.close()
			return fmt.Errorf("chaining the unwinding programs for waits: %w", err)
		}
	}
	c.waits = w
	return nil
}

// changeForWaits makes a program one for waits.
func (c *chain) changeForWaits(p *ebpf.ProgramSpec) error {
	p.Type = ebpf.RawTracepoint
	switch {
	case p.Name == entryProgram:
		return withoutRegisters(p.Instructions)
	case p.Name == hotspotProgram && c.frames > 0 && runtime.GOARCH == "amd64":
		return withoutMovedRegisters(p.Instructions)
	}
	return nil
}

// withoutRegisters changes the one instruction that reads what was interrupted, whether that is user code: the context
// of a tracepoint has no registers. What follows takes those with which the thread has entered the kernel.
func withoutRegisters(instructions asm.Instructions) error {
	line, offset := "regs->ss != __USER_DS", int16(160)
	if runtime.GOARCH == "arm64" {
		line, offset = "regs->pstate & PSR_MODE_MASK) != PSR_MODE_EL0t", 264
	}
	const kernelMode = 1 // neither architecture has user code with that
	changed := 0
	for i := range instructions {
		ins := &instructions[i]
		source := ins.Source()
		if source == nil || ins.OpCode.Class() != asm.LdXClass || ins.Offset != offset ||
			!strings.Contains(source.String(), line) {
			continue
		}
		constant := asm.Mov.Imm(ins.Dst, kernelMode)
		constant.Metadata = ins.Metadata
		*ins = constant
		changed++
	}
	if changed != 1 {
		return fmt.Errorf("the unwinding programs look at what was interrupted %d times", changed)
	}
	return nil
}

// withoutMovedRegisters has what addMovedStack adds know none of the registers that were interrupted: a thread that
// waits is in the kernel, where these are not its own.
func withoutMovedRegisters(instructions asm.Instructions) error {
	changed := 0
	for i := range instructions {
		ins := &instructions[i]
		if ins.Symbol() == jvmMovedCount {
			break
		}
		offset := ins.Offset
		if ins.OpCode.Class() == asm.LdXClass && ins.Src == asm.R6 &&
			(offset == regsIP || offset == regsSP || offset == regsCX) {
			*ins = asm.Mov.Imm(ins.Dst, movedUnknown).WithMetadata(ins.Metadata) // no address
			changed++
		}
	}
	if changed != 3 {
		return fmt.Errorf("the unwinding program for JVMs reads %d registers", changed)
	}
	return nil
}

// loadRuntime loads a kind's program, which the others can call then. The chain has it.
func (w *waitChain) loadRuntime(c *chain, kind *runtimeKind) error {
	collection, err := c.loadMore(c.changeForWaits, kind.program)
	if err != nil {
		return fmt.Errorf("loading the unwinding program for %s, for waits: %w", kind.name, err)
	}
	defer collection.Close()
	program := collection.DetachProgram(kind.program)
	if err := w.next.Put(kind.index, program); err != nil {
		program.Close()
		return err
	}
	w.runtimes[kind] = program
	return nil
}

// setLast has the chain end in a program, or end silently with nil.
func (w *waitChain) setLast(program *ebpf.Program) error { return setLast(w.next, program) }

func (w *waitChain) close() {
	if w == nil {
		return
	}
	for _, p := range w.programs {
		p.Close()
	}
	for _, p := range w.runtimes {
		p.Close()
	}
	w.next.Close()
}

// setLast puts the last program of a chain into its table.
func setLast(table *ebpf.Map, program *ebpf.Program) error {
	if program == nil {
		err := table.Delete(uint32(support.ProgUnwindStop))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	}
	return table.Put(uint32(support.ProgUnwindStop), program)
}
