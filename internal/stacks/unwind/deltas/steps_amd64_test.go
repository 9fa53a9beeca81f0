package deltas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/arch/x86/x86asm"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"correlator/internal/lab/testenv"
)

// mapped is a file in a process.
type mapped struct {
	start, end, bias uint64
	data             *stackdeltatypes.IntervalData
	path             string
}

// stepped is a process that executes one instruction after the other.
type stepped struct {
	pid   int
	files []mapped
	kinds map[uint64]x86asm.Op // CALL, RET, or another, by address
	names map[uint64]string    // of functions, by address
	calls []uint64             // return addresses, by what was executed since it was begun
}

func (s *stepped) word(addr uint64) (uint64, error) {
	var b [8]byte
	n, err := unix.PtracePeekData(s.pid, uintptr(addr), b[:])
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return binary.LittleEndian.Uint64(b[:]), err
}

// readMaps reads which files are mapped.
func (s *stepped) readMaps(t *testing.T) {
	t.Helper()
	known := make(map[string]*stackdeltatypes.IntervalData)
	for i := range s.files {
		known[s.files[i].path] = s.files[i].data
	}
	s.files = nil
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1][2] != 'x' || fields[5] == "[vsyscall]" {
			continue
		}
		var m mapped
		var offset uint64
		_, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.start, &m.end, &offset)
		assert.NilError(t, err)
		m.path = fields[5]
		if m.path == "[vdso]" {
			m.path = filepath.Join(t.TempDir(), "vdso")
			b := make([]byte, m.end-m.start)
			_, err := unix.PtracePeekData(s.pid, uintptr(m.start), b)
			assert.NilError(t, err)
			assert.NilError(t, os.WriteFile(m.path, b, 0o600))
		}
		ref := pfelf.NewReference(m.path, pfelf.SystemOpener)
		file, err := ref.GetELF()
		assert.NilError(t, err)
		for _, p := range file.Progs {
			if p.Flags&1 != 0 && p.Off&^0xfff == offset {
				m.bias = m.start - p.Vaddr&^0xfff
			}
		}
		if m.data = known[m.path]; m.data == nil {
			m.data, err = NewProvider().GetIntervalDataForFile(ref)
			assert.NilError(t, err)
		}
		ref.Close()
		s.files = append(s.files, m)
	}
}

// frame is what is known of a caller.
type frame struct {
	pc, sp, fp uint64
	returned   bool // pc is a return address
}

var errUnknown = errors.New("not known how to unwind")

// errCut: the stack is shown as cut.
var errCut = errors.New("cut")

// info returns how a frame is unwound.
func (s *stepped) info(f frame) (stackdeltatypes.UnwindInfo, error) {
	pc := f.pc
	if f.returned {
		pc--
	}
	for _, m := range s.files {
		if pc < m.start || pc >= m.end {
			continue
		}
		info := infoAt(m.data, pc-m.bias)
		if after := infoAt(m.data, f.pc-m.bias); after == stackdeltatypes.UnwindInfoSignal {
			info = after // nothing has called it; the engine stores it from one byte before
		}
		return info, nil
	}
	return stackdeltatypes.UnwindInfo{}, errUnknown
}

// unwind does what the engine's programs do for a frame of native code.
func (s *stepped) unwind(f frame) (caller frame, err error) {
	info, err := s.info(f)
	if err != nil {
		return frame{}, err
	}
	if info == stackdeltatypes.UnwindInfoInvalid {
		return frame{}, errCut
	}
	caller = f
	caller.returned = true
	var cfa uint64
	switch {
	case info == stackdeltatypes.UnwindInfoFramePointer:
		if caller.fp, err = s.word(f.fp); err != nil {
			return frame{}, err
		}
		cfa = f.fp + 16
	case info == stackdeltatypes.UnwindInfoSignal:
		caller.returned = false
		for at, to := range map[uint64]*uint64{10: &caller.fp, 15: &caller.sp, 16: &caller.pc} {
			if *to, err = s.word(f.sp + 40 + 8*at); err != nil {
				return frame{}, err
			}
		}
		return caller, nil
	case info.Flags == support.UnwindFlagCommand && info.Param == support.UnwindCommandPLT:
		cfa = f.sp + 8
		if f.pc&15 >= 11 {
			cfa += 8
		}
	case info.Flags&^support.UnwindFlagDerefCfa == 0:
		switch info.BaseReg {
		case support.UnwindRegSp:
			cfa = f.sp
		case support.UnwindRegFp:
			cfa = f.fp
		default:
			return frame{}, errUnknown
		}
		if info.Flags != 0 {
			before, after := stackdeltatypes.UnpackDerefParam(info.Param)
			if cfa, err = s.word(cfa + uint64(int64(before))); err != nil {
				return frame{}, err
			}
			cfa += uint64(int64(after))
		} else {
			cfa += uint64(int64(info.Param))
		}
		if info.AuxBaseReg == support.UnwindRegCfa {
			if caller.fp, err = s.word(cfa + uint64(int64(info.AuxParam))); err != nil {
				return frame{}, err
			}
		} else if info.BaseReg == support.UnwindRegFp {
			caller.fp = 0
		}
	default:
		return frame{}, errUnknown
	}
	if caller.pc, err = s.word(cfa - 8); err != nil {
		return frame{}, err
	}
	caller.sp = cfa
	return caller, nil
}

// startStepped starts a program, and stops it where a function begins.
func startStepped(t *testing.T, program, function string, env ...string) *stepped {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	assert.NilError(t, unix.SchedGetaffinity(0, &before))
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu) // also of the program, which runs only while we wait: nobody wakes another CPU for a step
		}
	}
	assert.NilError(t, unix.SchedSetaffinity(0, &one))
	t.Cleanup(func() {
		assert.Check(t, unix.SchedSetaffinity(0, &before))
		runtime.UnlockOSThread()
	})
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	assert.NilError(t, cmd.Start())
	s := &stepped{pid: cmd.Process.Pid, kinds: make(map[uint64]x86asm.Op), names: make(map[uint64]string)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = unix.Wait4(s.pid, nil, 0, nil)
	})
	var status unix.WaitStatus
	_, err := unix.Wait4(s.pid, &status, 0, nil)
	assert.Assert(t, err == nil && status.Stopped(), err)
	s.readMaps(t)
	file, err := pfelf.Open(program)
	assert.NilError(t, err)
	defer file.Close()
	at := uint64(0)
	_ = file.VisitSymbols(func(symbol libpf.Symbol) bool {
		if string(symbol.Name) == function {
			at = uint64(symbol.Address) + s.files[0].bias
		}
		return at == 0
	})
	assert.Assert(t, at != 0, "%s is not in %s", function, program)
	instruction, err := s.word(at)
	assert.NilError(t, err)
	s.poke(t, at, instruction&^0xff|0xcc)
	assert.NilError(t, unix.PtraceCont(s.pid, 0))
	for {
		_, err = unix.Wait4(s.pid, &status, 0, nil)
		assert.Assert(t, err == nil && status.Stopped(), "%v %x", err, status)
		if status.StopSignal() == unix.SIGTRAP {
			break
		}
		assert.NilError(t, unix.PtraceCont(s.pid, int(status.StopSignal())))
	}
	s.poke(t, at, instruction)
	regs := s.registers(t)
	regs.Rip = at
	assert.NilError(t, unix.PtraceSetRegs(s.pid, regs))
	s.readMaps(t)
	return s
}

func (s *stepped) poke(t *testing.T, addr, word uint64) {
	t.Helper()
	_, err := unix.PtracePokeData(s.pid, uintptr(addr), binary.LittleEndian.AppendUint64(nil, word))
	assert.NilError(t, err)
}

func (s *stepped) registers(t *testing.T) *unix.PtraceRegs {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(s.pid, &regs); err != nil {
		t.Fatal(err)
	}
	return &regs
}

// kind returns what the instruction at an address does to the stack of calls.
func (s *stepped) kind(t *testing.T, pc uint64) x86asm.Op {
	op, known := s.kinds[pc]
	if known {
		return op
	}
	var code [16]byte
	n, err := unix.PtracePeekText(s.pid, uintptr(pc), code[:])
	assert.NilError(t, err)
	if i, err := x86asm.Decode(code[:n], 64); err == nil {
		op = i.Op
	}
	s.kinds[pc] = op
	return op
}

// run executes a function, until it returns, and calls check before each instruction, with the
// registers.
func (s *stepped) run(t *testing.T, check func(f frame)) (steps int) {
	t.Helper()
	var status unix.WaitStatus
	signal := unix.Signal(0)
	for {
		regs := s.registers(t)
		check(frame{regs.Rip, regs.Rsp, regs.Rbp, false})
		op := s.kind(t, regs.Rip)
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(s.pid), 0, uintptr(signal), 0, 0)
		_, err := unix.Wait4(s.pid, &status, 0, nil)
		if errno != 0 || err != nil || !status.Stopped() {
			t.Fatalf("after %d steps: %v, %v, %x, in %v", steps, errno, err, status, s.calls)
		}
		if signal != 0 { // the handler was called: it returns to what returns from signals
			to, err := s.word(s.registers(t).Rsp)
			assert.NilError(t, err)
			s.calls = append(s.calls, regs.Rip, to)
			signal = 0
			continue
		}
		if signal = status.StopSignal(); signal != unix.SIGTRAP {
			continue // the instruction was not executed
		}
		signal = 0
		steps++
		switch op {
		case x86asm.CALL:
			after := s.registers(t)
			to, err := s.word(after.Rsp)
			assert.NilError(t, err)
			s.calls = append(s.calls, to)
		case x86asm.RET:
			if len(s.calls) == 0 {
				return steps
			}
			s.calls = s.calls[:len(s.calls)-1]
		case x86asm.JMP, x86asm.SYSCALL: // so Go returns to what needed a larger stack, and a signal's handler
			to := s.registers(t).Rip
			if i := slices.Index(s.calls, to); i >= 0 {
				s.calls = s.calls[:i]
			}
		}
	}
}

// place says which code is at an address.
func (s *stepped) place(pc uint64) string {
	for _, m := range s.files {
		if m.start <= pc && pc < m.end {
			return fmt.Sprintf("%s in %s at %#x", s.function(pc), filepath.Base(m.path), pc-m.bias)
		}
	}
	return fmt.Sprintf("%#x", pc)
}

// function returns the name of the symbol before an address.
func (s *stepped) function(pc uint64) (name string) {
	if name, known := s.names[pc]; known {
		return name
	}
	defer func() { s.names[pc] = name }()
	for _, m := range s.files {
		if pc < m.start || pc >= m.end {
			continue
		}
		file, err := pfelf.Open(m.path)
		if err != nil {
			break
		}
		defer file.Close()
		start := uint64(0)
		visit := func(symbol libpf.Symbol) bool {
			if at := uint64(symbol.Address); start < at && at <= pc-m.bias {
				name, start = string(symbol.Name), at
			}
			return true
		}
		if file.VisitSymbols(visit) != nil {
			_ = file.VisitDynamicSymbols(visit)
		}
	}
	return name
}

// checkEach unwinds from each instruction, and compares with the calls that were made. It returns how often the
// caller of a function is said to be unknown. except are functions that change the stack.
func (s *stepped) checkEach(t *testing.T, except ...string) (cuts map[string]int) {
	t.Helper()
	wrong := make(map[uint64]string)
	type place struct{ pc, caller uint64 }
	seen := make(map[place]bool)
	cuts = make(map[string]int)
	steps := s.run(t, func(f frame) {
		pc, err := f.pc, error(nil)
		if len(s.calls) == 0 {
			return
		}
		at := place{pc, s.calls[len(s.calls)-1]}
		if seen[at] {
			return
		}
		seen[at] = true
		for i := len(s.calls) - 1; i >= 0; i-- {
			before := f
			if f, err = s.unwind(f); err != nil || f.pc != s.calls[i] {
				function := s.function(before.pc)
				if errors.Is(err, errCut) {
					cuts[function]++
					break
				}
				if slices.Contains(except, function) {
					break
				}
				wrong[pc] = fmt.Sprintf("%v: frame %d is %s, not %s",
					err, len(s.calls)-i, s.place(f.pc), s.place(s.calls[i]))
				break
			}
		}
	})
	t.Logf("%d instructions at %d places, cut at %v", steps, len(seen), cuts)
	for pc, what := range wrong {
		t.Logf("%s: %s", s.place(pc), what)
	}
	assert.Check(t, len(wrong) == 0, "%d of %d places are wrong", len(wrong), len(seen))
	assert.Check(t, len(seen) > 1000, "it was at %d places", len(seen))
	return cuts
}

// From every instruction of a Go program, the callers are those that have called. Only of what makes its stack
// larger, on another stack, they are not known, and this is said.
func TestGoCallers(t *testing.T) { testGoCallers(t, "local", "pie") }

func testGoCallers(t *testing.T, toolchain, buildMode string) {
	t.Helper()
	s := startStepped(t, buildLeaves(t, toolchain, "amd64", "-buildmode="+buildMode), "main.work",
		"GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	for function := range s.checkEach(t, "gogo") {
		assert.Check(t, function == "runtime.morestack.abi0", function)
	}
}

// From every instruction of a C program, and of the C library that it calls, the callers are those that have
// called: from the library's assembly, calls through the PLT, calls at the end of functions, code that moves its stack
// pointer at will, the vDSO and a signal's handler. Only of what the loader does to find a function at its first call,
// they are not known, and this is said. musl's library and static programs do not say how they are unwound: their
// code does.
func TestCCallers(t *testing.T) {
	for _, compile := range []string{
		"gcc -O0", "gcc -O3 -static", "musl-gcc -O2", "musl-gcc -Os -static -no-pie",
	} {
		t.Run(compile, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "leaves")
			args := append(strings.Fields(compile), "-o", program, "testdata/leaves.c", "-lm")
			testenv.NeedTool(t, args[0])
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			assert.NilError(t, err, "%s", out)
			cuts := startStepped(t, program, "work", "LD_BIND_NOW=").checkEach(t)
			if compile == "gcc -O0" {
				maps.DeleteFunc(cuts, func(function string, _ int) bool { return strings.HasPrefix(function, "_dl_") })
			}
			assert.Check(t, len(cuts) == 0, cuts)
		})
	}
}
